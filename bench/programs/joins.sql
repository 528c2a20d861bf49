-- Queries whose joins begin alike, in several orders, and that keep copies of the same rows: what the three applications
-- have little of.
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(50), hat_id INT, inviter_id INT);
CREATE TABLE hats (id INT PRIMARY KEY, hat VARCHAR(50), shown INT);
CREATE TABLE stories (id INT PRIMARY KEY, user_id INT, title VARCHAR(100), created_at DATETIME);
CREATE TABLE taggings (id INT PRIMARY KEY, story_id INT, tag_id INT);
CREATE TABLE comments (id INT PRIMARY KEY, story_id INT, user_id INT, comment VARCHAR(200), created_at DATETIME);
CREATE TABLE days (day DATE PRIMARY KEY, note VARCHAR(50), holiday INT);
-- one join of comments and users; of comments, users and stories
CREATE VIEW comment_with_author AS SELECT c.id, c.comment, u.name FROM comments c JOIN users u ON u.id = c.user_id WHERE c.id = ?;
CREATE VIEW comments_of_user AS SELECT c.id, c.comment, s.title FROM comments c JOIN stories s ON s.id = c.story_id JOIN users u ON u.id = c.user_id WHERE u.id = ?;
CREATE VIEW comments_of_story AS SELECT c.id, u.name, s.title FROM comments c LEFT JOIN stories s ON s.id = c.story_id JOIN users u ON u.id = c.user_id WHERE c.story_id = ?;
CREATE VIEW comments_with_inviters AS SELECT c.id, i.name, s.title FROM comments c JOIN stories s ON s.id = c.story_id JOIN users u ON u.id = c.user_id JOIN users i ON i.id = u.inviter_id WHERE c.id = ?;
-- one join of stories and users before their tags
CREATE VIEW story_with_author AS SELECT s.id, s.title, u.name FROM stories s JOIN users u ON u.id = s.user_id WHERE s.id = ?;
CREATE VIEW tags_of_story AS SELECT s.title, t.tag_id, u.name FROM stories s JOIN taggings t ON t.story_id = s.id JOIN users u ON u.id = s.user_id WHERE s.id = ?;
CREATE VIEW stories_of_tag AS SELECT s.id, s.title, u.name FROM stories s JOIN taggings t ON t.story_id = s.id JOIN users u ON u.id = s.user_id WHERE t.tag_id = ?;
CREATE VIEW tags_of_user AS SELECT t.tag_id, COUNT(*) AS stories FROM stories s JOIN taggings t ON t.story_id = s.id JOIN users u ON u.id = s.user_id WHERE u.name = ? GROUP BY t.tag_id;
-- one copy of stories with their authors, who may be missing, by the authors' hats
CREATE VIEW hat_of_story AS SELECT s.id, h.hat FROM stories s LEFT JOIN users u ON u.id = s.user_id LEFT JOIN hats h ON h.id = u.hat_id WHERE s.id = ?;
CREATE VIEW hats_shown AS SELECT s.id, u.name, h.hat FROM stories s LEFT JOIN users u ON u.id = s.user_id JOIN hats h ON h.id = u.hat_id WHERE s.user_id = ?;
CREATE VIEW hat_and_note AS SELECT s.id, x.title AS other, h.hat FROM stories s LEFT JOIN stories x ON x.id = s.user_id LEFT JOIN users u ON u.id = s.user_id LEFT JOIN hats h ON h.id = u.hat_id WHERE s.id = ?;
-- one copy of comments by their days
CREATE VIEW comments_of_day AS SELECT c.id, c.comment FROM days d JOIN comments c ON DATE(c.created_at) = d.day WHERE d.day = ?;
CREATE VIEW stories_of_day AS SELECT c.story_id, d.note FROM days d JOIN comments c ON DATE(c.created_at) = d.day WHERE d.day = ?;
CREATE VIEW last_of_day AS SELECT DATE(created_at) AS day, MAX(id) AS last FROM comments GROUP BY DATE(created_at) HAVING DATE(created_at) = ?;
