#include "serve/api/openai/input_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace weft::serve {
namespace {

constexpr int64_t kMostOfPage = 100, kUsualPage = 20;

// Whether the id can be used in a query without escaping.
bool IsPlainId(const Json& id) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (!id.is_string()) return false;
    const auto& text = id.get_ref<const std::string&>();
    return !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
}

std::string ItemType(const Json& item) {
    const auto type = item.find("type");
    return type != item.end() && type->is_string() ? type->get<std::string>() : "message";
}

std::string ItemId(const ResponseStore::Stored& stored, size_t index) {
    const Json& item = (*stored.items)[index];
    const auto id = item.find("id");
    if (id != item.end() && IsPlainId(*id)) return id->get<std::string>();
    const std::string type = ItemType(item);
    const char* prefix = type == "function_call"          ? "fc"
                         : type == "function_call_output" ? "fco"
                         : type == "reasoning"            ? "rs"
                         : type == "message"              ? "msg"
                                                          : "item";
    const std::string of = stored.response["id"].get<std::string>();
    return fmt::format("{}_{}_{}", prefix, of.substr(of.find('_') + 1), index);
}

Json ItemJson(const ResponseStore::Stored& stored, size_t index) {
    const Json& item = (*stored.items)[index];
    const std::string type = ItemType(item);
    Json out{{"id", ItemId(stored, index)}, {"type", type}};
    if (type != "reasoning") out["status"] = "completed";
    for (const auto& [name, value] : item.items()) {
        if (name != "id" && name != "type" && !value.is_null()) out[name] = value;
    }
    const auto content = out.find("content");
    if (type != "message" || content == out.end() || !content->is_string()) return out;
    Json part{{"type", out["role"] == "assistant" ? "output_text" : "input_text"},
              {"text", *content}};
    if (out["role"] == "assistant") part["annotations"] = Json::array();
    *content = Json::array({std::move(part)});
    return out;
}

ApiError WrongQuery(const char* name, std::string_view value, const std::string& expected) {
    return {400,
            fmt::format("Invalid value for '{}': '{}'. Expected {}.", name, value.substr(0, 100),
                        expected),
            name, "invalid_value"};
}

}  // namespace

std::unordered_map<std::string, const Json*> StoredItems(const ResponseStore::Stored& stored) {
    std::unordered_map<std::string, const Json*> items;
    for (const Json& item : stored.response["output"]) {
        items.emplace(Fields(item).Text("id", ""), &item);
    }
    for (size_t i = 0; i < stored.items->size(); ++i) {
        items.emplace(ItemId(stored, i), &(*stored.items)[i]);
    }
    return items;
}

std::string_view QueryValue(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const size_t end = std::min(query.find('&'), query.size());
        const std::string_view pair = query.substr(0, end);
        query.remove_prefix(std::min(end + 1, query.size()));
        const size_t equals = pair.find('=');
        if (equals != std::string_view::npos && pair.substr(0, equals) == name) {
            return pair.substr(equals + 1);
        }
    }
    return {};
}

std::optional<ApiError> InputItems(const ResponseStore::Stored& stored, std::string_view query,
                                   Json& answer) {
    const std::string_view order = QueryValue(query, "order"), after = QueryValue(query, "after");
    if (!order.empty() && order != "asc" && order != "desc") {
        return WrongQuery("order", order, "'asc' or 'desc'");
    }
    int64_t limit = kUsualPage;
    if (const std::string_view text = QueryValue(query, "limit"); !text.empty()) {
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), limit);
        const bool number = code == std::errc() && end == text.data() + text.size();
        if (!number || limit < 1 || limit > kMostOfPage) {
            return WrongQuery("limit", text, fmt::format("1 to {}", kMostOfPage));
        }
    }
    const size_t count = stored.items->size();
    const auto index_of = [&](size_t place) { return order == "asc" ? place : count - 1 - place; };
    size_t begin = 0;
    if (!after.empty()) {  // the last match, so that each page follows the previous one
        begin = count;
        while (begin > 0 && ItemId(stored, index_of(begin - 1)) != after) --begin;
        if (begin == 0) return WrongQuery("after", after, "the id of an item");
    }
    const size_t end = std::min(count, begin + static_cast<size_t>(limit));
    Json data = Json::array();
    for (size_t i = begin; i < end; ++i) data.push_back(ItemJson(stored, index_of(i)));
    const Json first = data.empty() ? Json(nullptr) : data.front()["id"];
    const Json last = data.empty() ? Json(nullptr) : data.back()["id"];
    answer = {{"object", "list"},
              {"data", std::move(data)},
              {"first_id", first},
              {"last_id", last},
              {"has_more", end < count}};
    return {};
}

}  // namespace weft::serve
