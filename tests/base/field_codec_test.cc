#include "base/field_codec.h"

#include <gtest/gtest.h>

#include <optional>

namespace weft {
namespace {

enum class Color { kRed, kBlue };

const char* ColorName(Color color) {
    return color == Color::kRed ? "red" : "blue";
}

std::optional<Color> FindColor(std::string_view name) {
    for (const Color color : {Color::kRed, Color::kBlue}) {
        if (name == ColorName(color)) return color;
    }
    return std::nullopt;
}

struct Item {
    std::string name;
    int64_t count = 0;
};

struct Message {
    bool flag = false;
    int count = 0;
    uint64_t bytes = 0;
    float rate = 0;
    std::string text;
    std::vector<double> shares;
    Color color = Color::kRed;
    std::vector<Item> items;
};

constexpr auto kItemFields = [](auto& item, auto& visit) {
    visit("name", item.name);
    visit("count", item.count, FieldRange{0, 9});
};

constexpr auto kFields = [](auto& message, auto& visit) {
    visit.Kind("test");
    visit("flag", message.flag);
    visit("count", message.count, FieldRange{1, 8});
    visit("bytes", message.bytes);
    visit("rate", message.rate);
    visit("text", message.text);
    visit("shares", message.shares, FieldRange{0, 1});
    visit.Named("color", message.color, ColorName, FindColor);
    visit.List("items", message.items, kItemFields);
};

const Message kMessage{true, 3, UINT64_MAX, 0.5f, "a \"b\"", {0.25, 1}, Color::kBlue, {{"x", 2}}};

std::string ErrorOf(const std::string& text) {
    Message message;
    const Status status = DecodeFields("message", text, kFields, message);
    EXPECT_FALSE(status.ok()) << text;
    if (status.ok()) return "";
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    return status.error().message;
}

std::string ErrorWith(const char* field, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(EncodeFields(kMessage, kFields));
    json[field] = value;
    return ErrorOf(json.dump());
}

TEST(FieldCodec, ReadsWhatItWrote) {
    const std::string text = EncodeFields(kMessage, kFields);
    Message back;
    const Status status = DecodeFields("message", text, kFields, back);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(EncodeFields(back, kFields), text);
    EXPECT_EQ(back.bytes, UINT64_MAX);
    EXPECT_EQ(back.color, Color::kBlue);
    EXPECT_EQ(back.items.at(0).count, 2);
    EXPECT_EQ(KindOfMessage(text), "test");
}

TEST(FieldCodec, RefusesEachPrefix) {
    const std::string text = EncodeFields(kMessage, kFields);
    for (size_t size = 0; size < text.size(); ++size) ErrorOf(text.substr(0, size));
}

TEST(FieldCodec, NamesTheFieldAndTheRange) {
    EXPECT_EQ(ErrorWith("count", 9),
              "message: 'count' is 9; expected an integer of 32 bits from 1 to 8");
    EXPECT_EQ(ErrorWith("color", "green"), "message: 'color' is \"green\"; expected a known name");
    EXPECT_EQ(ErrorWith("kind", "other"), "message: 'kind' is \"other\"; expected test");
    EXPECT_EQ(ErrorWith("flag", 1), "message: 'flag' is 1; expected true or false");
    EXPECT_EQ(ErrorOf("[]"), "message: expected a JSON object, not a list of 0 items");
    EXPECT_EQ(ErrorOf("{\"kind\": \"test\"}"), "message: no field 'flag'");
    EXPECT_EQ(ErrorOf("{"),
              "message: line 1, column 2: syntax error while parsing object key - "
              "unexpected end of input; expected string literal");
}

// A double or a large integer never becomes another number.
TEST(FieldCodec, RefusesValuesThatDoNotFit) {
    for (const nlohmann::json& value : {nlohmann::json(1.5), nlohmann::json(int64_t{1} << 32),
                                        nlohmann::json("1"), nlohmann::json(nullptr)}) {
        EXPECT_NE(ErrorWith("count", value).find("'count'"), std::string::npos);
    }
    ErrorWith("bytes", -1);
    ErrorWith("rate", 1e300);
    ErrorWith("shares", {0.5, 1.5});
    ErrorWith("shares", {0.5, "x"});
    ErrorWith("items", {1});
    ErrorWith("items", nlohmann::json::array({{{"name", "x"}, {"count", 10}}}));
    EXPECT_LT(ErrorWith("color", std::string(1 << 20, 'x')).size(), 200u);
}

TEST(FieldCodec, WritesTextThatIsNotUtf8) {
    Message message = kMessage;
    message.text = "\xff";
    Message back;
    ASSERT_TRUE(DecodeFields("message", EncodeFields(message, kFields), kFields, back).ok());
    EXPECT_EQ(back.text, "\xef\xbf\xbd");
}

struct Files {
    std::string model;
    std::vector<std::string> data;
};

constexpr auto kFilesFields = [](auto& files, auto& visit) {
    visit.Path("model", files.model);
    visit.Path("data", files.data, [](const std::string& word) { return Result(word); });
};

// A path on Linux is any bytes: another rank opens the same file.
TEST(FieldCodec, KeepsTheBytesOfPaths) {
    const Files files{"/models/caf\xe9", {"a", "\xff/b", ""}};
    const std::string text = EncodeFields(files, kFilesFields);
    Files back;
    const Status status = DecodeFields("job", text, kFilesFields, back);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(back.model, files.model);
    EXPECT_EQ(back.data, files.data);
    for (const char* bad : {R"({"model": [256], "data": []})", R"({"model": [0], "data": []})",
                            R"({"model": ["a"], "data": []})", R"({"model": "a", "data": [1]})",
                            R"({"model": {}, "data": []})", R"({"model": "a", "data": "b"})"}) {
        EXPECT_EQ(DecodeFields("job", bad, kFilesFields, back).error().code, ErrorCode::kCorrupt)
            << bad;
    }
    const FolderLimit limit = FolderLimit::Make({"/usr"}).value();
    EXPECT_EQ(DecodeFields("job", EncodeFields(Files{"/srv/\xe9", {}}, kFilesFields), kFilesFields,
                           back, limit)
                  .error()
                  .code,
              ErrorCode::kDenied);
}

TEST(FieldCodec, TextWithoutAKindHasNone) {
    for (const char* text : {"", "[]", "{}", "{\"kind\": 3}"}) EXPECT_EQ(KindOfMessage(text), "");
}

}  // namespace
}  // namespace weft
