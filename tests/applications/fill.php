<?php // Fills a WordPress with posts, terms, comments and users, asks its queries, changes and deletes some.
require "wp-load.php";
require_once ABSPATH . "wp-admin/includes/admin.php";
for ($i = 0; $i < 4; $i++) $categories[] = wp_create_category("Cat $i");
foreach (["ada", "bob"] as $name) $users[] = wp_create_user($name, "pw", "$name@example.org");
$first = strtotime("2024-01-01 10:00:00 UTC");
for ($i = 0; $i < 25; $i++) {
    $moment = $first + $i * 86400;
    $id = wp_insert_post(["post_title" => "Title $i " . ($i % 3 ? "red" : "blue"), "post_content" => "Number $i " . str_repeat("lorem ", $i),
        "post_status" => $i % 7 == 6 ? "draft" : "publish", "post_author" => $users[$i % 2], "post_category" => [$categories[$i % 4]],
        "tags_input" => "tag" . ($i % 5) . ",common", "post_date" => gmdate("Y-m-d H:i:s", $moment), "meta_input" => ["rating" => $i % 4]]);
    for ($j = 0; $j < $i % 4; $j++) {
        $date = gmdate("Y-m-d H:i:s", $moment + $j * 60);
        wp_insert_comment(["comment_post_ID" => $id, "comment_author" => "C$j", "comment_author_email" => "c@example.org",
            "comment_content" => "comment $j on $i", "comment_date" => $date, "comment_date_gmt" => $date, "comment_approved" => 1]);
    }
}
$rated = new WP_Query(["meta_query" => [["key" => "rating", "value" => 2, "compare" => ">=", "type" => "NUMERIC"]],
    "orderby" => "meta_value_num", "meta_key" => "rating", "posts_per_page" => 5]);
echo "rated ", $rated->found_posts, "\n";
$any = new WP_Query(["orderby" => "rand", "posts_per_page" => 3]);
echo "any ", count($any->posts), "\n";
$both = new WP_Query(["tax_query" => ["relation" => "AND", ["taxonomy" => "category", "field" => "slug", "terms" => ["cat-1", "cat-2"]],
    ["taxonomy" => "post_tag", "field" => "slug", "terms" => ["tag1"], "operator" => "NOT IN"]], "posts_per_page" => -1]);
echo "terms ", implode(",", wp_list_pluck($both->posts, "post_title")), "\n";
$dated = new WP_Query(["date_query" => [["after" => "2024-01-10", "before" => "2024-01-20"]], "s" => "red", "posts_per_page" => -1]);
echo "dated ", implode(",", wp_list_pluck($dated->posts, "post_title")), "\n";
$found = new WP_User_Query(["search" => "*a*", "orderby" => "post_count"]);
echo "users ", $found->get_total(), "\n";
echo "counts ", json_encode(wp_count_posts()), json_encode(wp_count_comments()), "\n";
foreach (get_terms(["taxonomy" => "post_tag", "orderby" => "name"]) as $term) echo $term->name, "=", $term->count, " ";
wp_trash_post(5);
wp_delete_post(6, true);
wp_update_post(["ID" => 7, "post_title" => "Changed"]);
wp_delete_term($categories[3], "category");
update_option("blogdescription", "Über ☃");
set_transient("x", ["a" => 1], 60);
var_dump(get_transient("x"));
