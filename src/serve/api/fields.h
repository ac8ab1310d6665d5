// Reads the members of a request's JSON object and checks types and ranges. The first fault becomes
// the error, in the format of OpenAI's API (message, param, code).
//
//     Fields fields(json);
//     double temperature = fields.Number("temperature", 1, 0, 2);
//     if (fields.error()) return *fields.error();
//
// An absent or null member gives the default. After an error all readers return defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft::serve {

using Json = nlohmann::ordered_json;

// Error code: the prompt is longer than the context.
inline constexpr const char* kContextExceeded = "context_length_exceeded";

// A prompt that is longer than the context.
struct FullContext {
    int64_t tokens = 0;  // of the prompt
    int64_t context = 0;
    bool answers = true;    // the context must also hold a token of the answer
    bool at_least = false;  // the prompt may have more tokens
};

// An error response for the client.
struct ApiError {
    int status = 400;
    std::string message;
    std::string param{}, code{};
    // The message quotes text of the request, so the log gets the code only.
    bool quotes = false;
    // kContextExceeded. Clients recognize it by its text, so each API has its own text for it in
    // place of `message`.
    std::optional<FullContext> full{};
};

// 400, kContextExceeded.
ApiError TooLong(const FullContext& full, std::string param);

// Maps error codes to HTTP status: kUsage 400, kCancelled and kPeerLost 503, kTimeout 504, others
// 500.
ApiError ErrorOf(const Error& error);

class Fields {
  public:
    // `path`: prefix of member names in messages ("messages[2]."). `json` outlives this.
    explicit Fields(const Json& json, std::string path = "");

    // A member may have other servers' names (kNames in fields.cc): the readers below use the first
    // of these names that the request has, and state it in errors.
    bool Has(const char* name) const;
    // The name under which the request has the member; `name` if it has none.
    const char* RequestName(const char* name) const;
    // Whether the member has other names, of which the request may have one with effect.
    static bool HasOtherNames(std::string_view name);
    // The member, or JSON null if it is absent.
    const Json& Get(const char* name) const;
    double Number(const char* name, double otherwise, double least, double most);
    int64_t Integer(const char* name, int64_t otherwise, int64_t least, int64_t most);
    bool Bool(const char* name, bool otherwise);
    std::string Text(const char* name, std::string otherwise);
    // A string that must be one of `known`.
    std::string Choice(const char* name, const char* otherwise,
                       const std::vector<std::string_view>& known);
    // A string, or a list of at most `most` strings.
    std::vector<std::string> Texts(const char* name, size_t most);
    // An object, or JSON null if absent.
    const Json& Object(const char* name);
    // A list; empty if absent.
    const Json& List(const char* name);

    // Whether a list has at most `most` entries; an error if not.
    bool AtMost(size_t most, const char* name, const Json& list);
    // Reads the entries of a list, which must be objects, until an error.
    void Each(const char* name, const Json& list,
              const std::function<void(Fields&, const Json&)>& read);

    void Fail(const char* name, std::string message, std::string code = "invalid_value");
    void Fail(ApiError error) {
        if (!error_) error_ = std::move(error);
    }
    // Takes over the error of an inner object, whose path is complete.
    void Adopt(const Fields& part) {
        if (!error_) error_ = part.error_;
    }
    const std::optional<ApiError>& error() const { return error_; }
    // The members that no call of this object has read, except null ones; in order.
    std::vector<std::pair<std::string, const Json*>> Unread() const;
    // The member's full name, for messages.
    std::string PathOf(const char* name) const { return path_ + name; }

  private:
    const Json* Own(const char* name) const;
    const Json* Present(const char*& name) const;
    void WrongType(const char* name, const char* expected, const Json& value);

    const Json& json_;
    std::string path_;
    mutable std::set<std::string, std::less<>> read_;
    std::optional<ApiError> error_;
};

// Limits of a request body for the reader in base/json.h: nesting, values, members of one object.
inline constexpr size_t kMostBodyDepth = 100;
inline constexpr size_t kMostBodyValues = size_t{1} << 20;
inline constexpr size_t kMostBodyKeys = 10'000;

// Parses the body as a JSON object within these limits. Error: 400.
std::optional<ApiError> ParseBody(std::string_view body, Json& out);

// Parses JSON inside a request's strings, such as call arguments. All of them together are limited
// to kMostBodyValues.
class InnerJson {
  public:
    // Text that is not JSON becomes a JSON string. Returns false if the text exceeds the limits,
    // and then sets the error on member `name` of `fields`.
    bool Read(const std::string& text, Fields& fields, const char* name, Json& out);

  private:
    size_t values_left_ = kMostBodyValues;
};

}  // namespace weft::serve
