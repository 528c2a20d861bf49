-- Lobsters, a news aggregator: the public schema's tables and columns that its pages read, and the natural queries of
-- those pages, one view for each text.  Scores are computed, not stored.
CREATE TABLE users (id INT PRIMARY KEY, username VARCHAR(50), email VARCHAR(100), is_admin INT, is_moderator INT, about TEXT, created_at INT, invited_by INT);
CREATE TABLE stories (id INT PRIMARY KEY, created_at INT, user_id INT, url VARCHAR(250), title VARCHAR(150), description TEXT, short_id VARCHAR(6), is_expired INT, is_moderated INT, merged_story_id INT, user_is_author INT);
CREATE TABLE comments (id INT PRIMARY KEY, created_at INT, short_id VARCHAR(10), story_id INT, user_id INT, parent_comment_id INT, thread_id INT, comment TEXT, is_deleted INT, is_moderated INT);
CREATE TABLE votes (id INT PRIMARY KEY, user_id INT, story_id INT, comment_id INT, vote INT, reason VARCHAR(1));
CREATE TABLE tags (id INT PRIMARY KEY, tag VARCHAR(25), description VARCHAR(100), inactive INT, hotness_mod INT);
CREATE TABLE taggings (id INT PRIMARY KEY, story_id INT, tag_id INT);
CREATE TABLE tag_filters (id INT PRIMARY KEY, user_id INT, tag_id INT);
CREATE TABLE hidden_stories (id INT PRIMARY KEY, user_id INT, story_id INT);
CREATE TABLE saved_stories (id INT PRIMARY KEY, user_id INT, story_id INT);
CREATE TABLE read_ribbons (id INT PRIMARY KEY, is_following INT, user_id INT, story_id INT, updated_at INT);
CREATE TABLE suggested_titles (id INT PRIMARY KEY, story_id INT, user_id INT, title VARCHAR(150));
CREATE TABLE suggested_taggings (id INT PRIMARY KEY, story_id INT, tag_id INT, user_id INT);
CREATE TABLE hats (id INT PRIMARY KEY, user_id INT, hat VARCHAR(50), link VARCHAR(100));
CREATE TABLE keystores (`key` VARCHAR(50) PRIMARY KEY, value INT);
-- helpers
CREATE INTERNAL VIEW story_upvotes AS SELECT story_id AS id, COUNT(*) AS votes FROM votes WHERE comment_id IS NULL AND vote = 1 GROUP BY story_id;
CREATE INTERNAL VIEW story_downvotes AS SELECT story_id AS id, COUNT(*) AS votes FROM votes WHERE comment_id IS NULL AND vote = 0 GROUP BY story_id;
CREATE INTERNAL VIEW comment_upvotes AS SELECT comment_id AS id, COUNT(*) AS votes FROM votes WHERE comment_id IS NOT NULL AND vote = 1 GROUP BY comment_id;
CREATE INTERNAL VIEW comment_downvotes AS SELECT comment_id AS id, COUNT(*) AS votes FROM votes WHERE comment_id IS NOT NULL AND vote = 0 GROUP BY comment_id;
CREATE INTERNAL VIEW story_with_votes AS SELECT stories.*, COALESCE(u.votes, 0) AS upvotes, COALESCE(d.votes, 0) AS downvotes, COALESCE(u.votes, 0) - COALESCE(d.votes, 0) AS score FROM stories LEFT JOIN story_upvotes u ON u.id = stories.id LEFT JOIN story_downvotes d ON d.id = stories.id;
CREATE INTERNAL VIEW comment_with_votes AS SELECT comments.*, COALESCE(u.votes, 0) AS upvotes, COALESCE(d.votes, 0) AS downvotes, COALESCE(u.votes, 0) - COALESCE(d.votes, 0) AS score FROM comments LEFT JOIN comment_upvotes u ON u.id = comments.id LEFT JOIN comment_downvotes d ON d.id = comments.id;
CREATE INTERNAL VIEW story_tag_score AS SELECT taggings.story_id AS id, SUM(tags.hotness_mod) AS score FROM taggings JOIN tags ON tags.id = taggings.tag_id GROUP BY taggings.story_id;
CREATE INTERNAL VIEW story_comment_score AS SELECT c.story_id AS id, SUM(c.score) AS score FROM comment_with_votes c JOIN stories ON stories.id = c.story_id WHERE c.user_id <> stories.user_id GROUP BY c.story_id;
CREATE INTERNAL VIEW story_comments AS SELECT story_id AS id, COUNT(*) AS comments FROM comments GROUP BY story_id;
CREATE INTERNAL VIEW hotness AS SELECT s.id AS id, s.score + COALESCE(t.score, 0) + COALESCE(c.score, 0) AS hotness FROM story_with_votes s LEFT JOIN story_tag_score t ON t.id = s.id LEFT JOIN story_comment_score c ON c.id = s.id WHERE s.merged_story_id IS NULL AND s.is_expired = 0;
-- login and notifications
CREATE VIEW login AS SELECT 1 AS one FROM users WHERE username = ?;
CREATE VIEW user_by_name AS SELECT * FROM users WHERE username = ?;
CREATE VIEW keystore AS SELECT * FROM keystores WHERE `key` = ?;
CREATE VIEW notifications AS SELECT r.user_id, COUNT(*) AS n FROM read_ribbons r JOIN comments c ON c.story_id = r.story_id WHERE r.is_following = 1 AND c.user_id <> r.user_id AND c.is_deleted = 0 AND c.is_moderated = 0 AND c.created_at > r.updated_at AND r.user_id = ? GROUP BY r.user_id;
-- frontpage and recent
CREATE VIEW frontpage_ids AS SELECT id, hotness FROM hotness ORDER BY hotness DESC LIMIT 51;
CREATE VIEW recent_ids AS SELECT id, created_at FROM stories WHERE merged_story_id IS NULL AND is_expired = 0 ORDER BY created_at DESC LIMIT 51;
CREATE VIEW story_listed AS SELECT * FROM story_with_votes WHERE merged_story_id IS NULL AND is_expired = 0 AND score >= 0 AND id = ?;
CREATE VIEW filters_of_user AS SELECT * FROM tag_filters WHERE user_id = ?;
CREATE VIEW filter_tags_of_user AS SELECT tag_id FROM tag_filters WHERE user_id = ?;
CREATE VIEW taggings_of_story AS SELECT * FROM taggings WHERE story_id = ?;
CREATE VIEW tag_ids_of_story AS SELECT tag_id FROM taggings WHERE story_id = ?;
CREATE VIEW user_by_id AS SELECT * FROM users WHERE id = ?;
CREATE VIEW username_by_id AS SELECT id, username FROM users WHERE id = ?;
CREATE VIEW titles_of_story AS SELECT * FROM suggested_titles WHERE story_id = ?;
CREATE VIEW suggested_of_story AS SELECT * FROM suggested_taggings WHERE story_id = ?;
CREATE VIEW tag_by_id AS SELECT * FROM tags WHERE id = ?;
CREATE VIEW active_tag_by_id AS SELECT * FROM tags WHERE inactive = 0 AND id = ?;
CREATE VIEW active_tag AS SELECT * FROM tags WHERE inactive = 0 AND tag = ?;
CREATE VIEW vote_of_user AS SELECT * FROM votes WHERE user_id = ? AND story_id = ? AND comment_id IS NULL;
CREATE VIEW vote_value_of_user AS SELECT vote FROM votes WHERE user_id = ? AND story_id = ? AND comment_id IS NULL;
CREATE VIEW hidden_of_user AS SELECT * FROM hidden_stories WHERE user_id = ? AND story_id = ?;
CREATE VIEW is_hidden AS SELECT 1 AS one FROM hidden_stories WHERE user_id = ? AND story_id = ?;
CREATE VIEW saved_of_user AS SELECT * FROM saved_stories WHERE user_id = ? AND story_id = ?;
CREATE VIEW is_saved AS SELECT 1 AS one FROM saved_stories WHERE user_id = ? AND story_id = ?;
-- story
CREATE VIEW story_by_short_id AS SELECT * FROM story_with_votes WHERE short_id = ?;
CREATE VIEW story_by_id AS SELECT * FROM story_with_votes WHERE id = ?;
CREATE VIEW merged_stories AS SELECT * FROM story_with_votes WHERE merged_story_id = ?;
CREATE VIEW merged_ids AS SELECT id FROM stories WHERE merged_story_id = ?;
CREATE VIEW ribbon AS SELECT * FROM read_ribbons WHERE user_id = ? AND story_id = ?;
CREATE VIEW comments_of_story AS SELECT * FROM comment_with_votes WHERE story_id = ? ORDER BY score DESC;
CREATE VIEW comment_count AS SELECT id, comments FROM story_comments WHERE id = ?;
CREATE VIEW last_comment AS SELECT story_id, MAX(created_at) AS latest FROM comments WHERE story_id = ? GROUP BY story_id;
CREATE VIEW comment_stats AS SELECT story_id, COUNT(*) AS n, MIN(created_at) AS first_at FROM comments WHERE story_id = ? GROUP BY story_id;
CREATE VIEW shown_comments AS SELECT story_id, COUNT(*) AS n FROM comments WHERE is_deleted = 0 AND is_moderated = 0 AND story_id = ? GROUP BY story_id;
CREATE VIEW hidden_comments AS SELECT story_id, COUNT(*) AS n FROM comments WHERE is_deleted = 1 AND is_moderated = 0 AND story_id = ? GROUP BY story_id;
CREATE VIEW story_score AS SELECT id, score FROM story_with_votes WHERE id = ?;
CREATE VIEW story_hotness AS SELECT id, hotness FROM hotness WHERE id = ?;
-- comments
CREATE VIEW recent_comments AS SELECT id, created_at FROM comments WHERE is_deleted = 0 AND is_moderated = 0 ORDER BY created_at DESC LIMIT 40;
CREATE VIEW comment_by_id AS SELECT * FROM comment_with_votes WHERE id = ?;
CREATE VIEW comment_by_short_id AS SELECT * FROM comments WHERE short_id = ?;
CREATE VIEW comment_vote_of_user AS SELECT * FROM votes WHERE user_id = ? AND comment_id = ?;
CREATE VIEW comment_vote_value AS SELECT vote FROM votes WHERE user_id = ? AND comment_id = ?;
CREATE VIEW votes_of_story AS SELECT * FROM votes WHERE story_id = ? AND comment_id IS NULL;
CREATE VIEW upvoters_of_story AS SELECT user_id FROM votes WHERE story_id = ? AND comment_id IS NULL AND vote = 1;
-- user
CREATE VIEW stories_by_user AS SELECT user_id, COUNT(*) AS n FROM stories WHERE user_id = ? GROUP BY user_id;
CREATE VIEW latest_by_user AS SELECT user_id, MAX(created_at) AS latest FROM stories WHERE user_id = ? GROUP BY user_id;
CREATE VIEW comments_by_user AS SELECT user_id, COUNT(*) AS n FROM comments WHERE user_id = ? GROUP BY user_id;
CREATE VIEW story_karma AS SELECT user_id, SUM(score) AS karma FROM story_with_votes WHERE user_id = ? GROUP BY user_id;
CREATE VIEW story_votes_of_user AS SELECT user_id, SUM(upvotes) AS up, SUM(downvotes) AS down FROM story_with_votes WHERE user_id = ? GROUP BY user_id;
CREATE VIEW comment_karma AS SELECT user_id, SUM(score) AS karma FROM comment_with_votes WHERE user_id = ? GROUP BY user_id;
CREATE VIEW tags_of_user AS SELECT stories.user_id, tags.tag, COUNT(*) AS n FROM taggings JOIN tags ON tags.id = taggings.tag_id JOIN stories ON stories.id = taggings.story_id WHERE stories.user_id = ? GROUP BY stories.user_id, tags.tag;
CREATE VIEW favourite_tag AS SELECT stories.user_id, tags.tag, COUNT(*) AS n FROM taggings JOIN tags ON tags.id = taggings.tag_id JOIN stories ON stories.id = taggings.story_id WHERE stories.user_id = ? GROUP BY stories.user_id, tags.tag ORDER BY n DESC LIMIT 1;
CREATE VIEW has_hat AS SELECT 1 AS one FROM hats WHERE user_id = ?;
CREATE VIEW hats_of_user AS SELECT * FROM hats WHERE user_id = ?;
CREATE VIEW stories_of_user AS SELECT * FROM story_with_votes WHERE user_id = ? ORDER BY created_at DESC LIMIT 20;
CREATE VIEW first_stories_of_user AS SELECT * FROM story_with_votes WHERE user_id = ? ORDER BY created_at DESC LIMIT 5;
CREATE VIEW story_of_url AS SELECT id, is_expired FROM stories WHERE url = ?;
