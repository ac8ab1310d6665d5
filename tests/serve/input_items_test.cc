// Pages of a stored response's input.
#include "serve/api/openai/input_items.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

ResponseStore::Stored StoredOf(Json items) {
    return {Json{{"id", "resp_x"}}, std::make_shared<const Json>(std::move(items)), 0};
}

Json Page(const ResponseStore::Stored& stored, const char* query) {
    Json answer;
    const auto error = InputItems(stored, query, answer);
    EXPECT_FALSE(error) << query;
    return answer;
}

TEST(InputItems, HaveIdsAndParts) {
    const auto stored = StoredOf(
        {{{"role", "user"}, {"content", "Hi"}},
         {{"id", "msg_1"}, {"role", "assistant"}, {"content", "Ho"}},
         {{"type", "function_call"}, {"id", "a&b"}, {"call_id", "c"}, {"name", "f"}},
         {{"type", "reasoning"}, {"content", Json::array()}, {"encrypted_content", nullptr}},
         {{"type", "message"},
          {"role", "user"},
          {"content", Json::array({{{"type", "input_text"}, {"text", "So"}}})}}});
    const Json page = Page(stored, "order=asc");
    EXPECT_EQ(page["object"], "list");
    EXPECT_EQ(page["has_more"], false);
    const Json& data = page["data"];
    ASSERT_EQ(data.size(), 5u);
    EXPECT_EQ(data[0], Json::parse(R"({"id": "msg_x_0", "type": "message", "status": "completed",
        "role": "user", "content": [{"type": "input_text", "text": "Hi"}]})"));
    EXPECT_EQ(data[1]["id"], "msg_1");
    EXPECT_EQ(data[1]["content"][0]["type"], "output_text");
    EXPECT_EQ(data[2]["id"], "fc_x_2");
    EXPECT_EQ(data[2]["call_id"], "c");
    EXPECT_EQ(data[3], Json::parse(R"({"id": "rs_x_3", "type": "reasoning", "content": []})"));
    EXPECT_EQ(data[4]["content"][0]["text"], "So");
    EXPECT_EQ(page["first_id"], "msg_x_0");
    EXPECT_EQ(page["last_id"], "msg_x_4");
    EXPECT_EQ(Page(stored, "")["first_id"], "msg_x_4") << "the newest first";
}

// Paging ends even if ids repeat.
TEST(InputItems, PagesFollowOneAnother) {
    Json items = Json::array();
    for (int i = 0; i < 7; ++i) {
        items.push_back({{"id", i < 4 ? "same" : ""}, {"role", "user"}, {"content", "a"}});
    }
    const auto stored = StoredOf(std::move(items));
    std::string after, ids;
    for (bool more = true; more;) {
        const Json page = Page(stored, ("limit=2&order=desc&after=" + after).c_str());
        for (const Json& item : page["data"]) ids += item["id"].get<std::string>() + " ";
        after = page["data"].empty() ? "" : page["last_id"].get<std::string>();
        more = page["has_more"].get<bool>();
    }
    EXPECT_EQ(ids, "msg_x_6 msg_x_5 msg_x_4 same ");
    EXPECT_EQ(Page(stored, "after=same")["data"].size(), 0u);
    EXPECT_EQ(Page(stored, "after=same")["last_id"], nullptr);
    EXPECT_EQ(Page(stored, "limit=100")["data"].size(), 7u);
    EXPECT_EQ(Page(stored, "include%5B%5D=x&limit=1")["data"].size(), 1u);
}

TEST(InputItems, RejectInvalidQueries) {
    const auto stored = StoredOf({{{"role", "user"}, {"content", "a"}}});
    for (const char* query : {"limit=0", "limit=101", "limit=-1", "limit=9999999999999999999999",
                              "limit=2x", "order=up", "after=b", "after=msg_x_1"}) {
        Json answer;
        const auto error = InputItems(stored, query, answer);
        ASSERT_TRUE(error) << query;
        EXPECT_EQ(error->status, 400);
        EXPECT_EQ(std::string(query).rfind(error->param + "=", 0), 0u) << query;
    }
}

}  // namespace
}  // namespace weft::serve
