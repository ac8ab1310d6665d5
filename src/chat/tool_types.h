// Functions offered in a conversation, and the types of their parameters. Some models write
// arguments as plain text between tags (Qwen-Coder, GLM, MiniMax), so only the function's schema
// determines whether 12345 is a number or a string.
//
// Thread: immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "chat/template/chat_template.h"

namespace weft::chat {

class ToolTypes {
  public:
    // No functions.
    ToolTypes() = default;
    // tools: as in ChatInput; invalid entries are ignored.
    explicit ToolTypes(const OrderedJson& tools);

    bool empty() const { return functions_.empty(); }
    bool Has(std::string_view function) const;
    // Whether a function's name begins with `text`.
    bool Begins(std::string_view text) const;

    // Converts an argument's text to a value of its parameter's type: a string if the type requires
    // it or if the text is not JSON (nor True, False or None); else the JSON value.
    OrderedJson ValueOf(std::string_view function, std::string_view parameter,
                        std::string_view text) const;
    // Whether the parameter's type is a string and nothing else.
    bool IsText(std::string_view function, std::string_view parameter) const;

  private:
    using Mask = uint32_t;  // set of types
    using Parameters = std::map<std::string, Mask, std::less<>>;

    static Mask NamedType(std::string_view name);
    static Mask TypeOf(const OrderedJson& value);
    Mask Find(std::string_view function, std::string_view parameter) const;

    std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace weft::chat
