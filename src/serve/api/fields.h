// Reading the members of a request's JSON object: types and ranges checked, the first thing that
// is wrong becomes the error, in the words of OpenAI's API (message, param, code).
//
//     Fields fields(json);
//     double temperature = fields.Number("temperature", 1, 0, 2);
//     if (fields.error()) return *fields.error();
//
// A member that is absent or null gives the default. After an error the readers return defaults.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::serve {

using Json = nlohmann::ordered_json;

// What a client hears instead of an answer.
struct ApiError {
    int status = 400;
    std::string message;
    std::string param{}, code{};
    // The message may hold text of the request, and not only in quotes: the log has the code alone.
    bool quotes = false;
};

// The code of a prompt that is longer than the context.
inline constexpr const char* kContextExceeded = "context_length_exceeded";

// By what went wrong: kUsage is the client's (400), kCancelled and kPeerLost are 503, kTimeout 504,
// the others 500.
ApiError ErrorOf(const Error& error);

class Fields {
  public:
    // `path`: where the object is, for messages ("messages[2]."). `json` outlives this.
    explicit Fields(const Json& json, std::string path = "");

    bool Has(const char* name) const;
    // The member; null where it is absent.
    const Json& Get(const char* name) const;
    double Number(const char* name, double otherwise, double least, double most);
    int64_t Integer(const char* name, int64_t otherwise, int64_t least, int64_t most);
    bool Bool(const char* name, bool otherwise);
    std::string Text(const char* name, std::string otherwise);
    // One of `known`.
    std::string Choice(const char* name, const char* otherwise,
                       const std::vector<std::string_view>& known);
    // A text, or a list of at most `most` of them.
    std::vector<std::string> Texts(const char* name, size_t most);
    // An object, or null.
    const Json& Object(const char* name);
    // A list; an empty one where it is absent.
    const Json& List(const char* name);

    void Fail(const char* name, std::string message, std::string code = "invalid_value");
    const std::optional<ApiError>& error() const { return error_; }
    // What a member is called in messages.
    std::string PathOf(const char* name) const { return path_ + name; }

  private:
    const Json* Present(const char* name) const;
    void WrongType(const char* name, const char* expected, const Json& value);

    const Json& json_;
    std::string path_;
    std::optional<ApiError> error_;
};

// What a request may hold, by base/json.h's reader: levels, values, members of one object.
inline constexpr size_t kMostBodyDepth = 100;
inline constexpr size_t kMostBodyValues = size_t{1} << 20;
inline constexpr size_t kMostBodyKeys = 10'000;

// The body as a JSON object within these bounds. 400 where it is none.
std::optional<ApiError> ParseBody(std::string_view body, Json& out);

// JSON that a request has inside of its texts, as the arguments of calls are. Together they may
// hold as many values as a body.
class InnerJson {
  public:
    // False: what `name` of `fields` says is beyond the bounds, and that is its error now. Text
    // that is no JSON becomes a string.
    bool Read(const std::string& text, Fields& fields, const char* name, Json& out);

  private:
    size_t values_left_ = kMostBodyValues;
};

}  // namespace weft::serve
