// Tools of the Responses API. Functions and custom tools, alone or in a namespace, are offered to
// the model as functions; tools that OpenAI's servers run, and tools whose schema only OpenAI's
// models have learned, are left out.
//
//     function in namespace `crm`   the model sees crm__NAME; the call has `name` and `namespace`
//     custom tool                   the model sees a function with one argument, `input`; the call
//                                   is a custom_tool_call with this text
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/fields.h"
#include "serve/api/openai/chat.h"

namespace weft::serve {

// A tool as the client named it.
struct ResponseTool {
    std::string name;
    std::string name_space{};  // empty: none
    bool custom = false;       // its argument is a text, not JSON

    bool operator==(const ResponseTool&) const = default;
};

// The argument of a custom tool's function.
inline constexpr const char* kCustomInput = "input";

class ResponseTools {
  public:
    // The function name under which the model sees a tool.
    static std::string ShownName(const std::string& name_space, const std::string& name);

    // Adds the list `tools` of a request or an item to the conversation. path: the list's name in
    // messages. Reports errors in `fields`.
    void Read(Fields& fields, const Json& tools, const std::string& path,
              Conversation& conversation);
    // Reads `tool_choice`, after all tools.
    void ReadChoice(Fields& fields, Conversation& conversation) const;

    // The tool that the model calls by `shown`; for an unknown name, a function of that name.
    ResponseTool Of(const std::string& shown) const;
    // Sentences about tools that were left out, for the log; without text of the request.
    const std::set<std::string>& notices() const { return notices_; }

  private:
    void ReadOne(Fields& fields, const Json& json, const std::string& path,
                 const std::string& name_space, Conversation& conversation);
    void LeaveOut(Fields& tool, const std::string& type);
    bool AddName(Fields& tool, const std::string& shown, const ResponseTool& known);
    Json AllowedNames(const Json& listed) const;

    std::map<std::string, ResponseTool> shown_;
    std::set<std::string> notices_;
};

// Decodes the text of a custom tool from the JSON that the model writes: the first string in
// {"input": "..."}. JSON of another form is the text itself.
class CustomText {
  public:
    // Consumes a piece of JSON and returns the new text.
    std::string Push(std::string_view json);
    // The rest of the text, at the end of the JSON.
    std::string Finish();

  private:
    enum class At { kBefore, kInside, kBehind };
    void Open();

    At at_ = At::kBefore;
    std::string held_;  // JSON that is not decoded yet
};
// The text in complete JSON.
std::string CustomTextOf(const std::string& json);

}  // namespace weft::serve
