// The functions that a conversation offers, and of what types their parameters are. Models that
// write arguments as plain text between tags (Qwen's coders, GLM, MiniMax) don't say whether 12345
// is a number or a postcode: the function's schema does.
//
// Thread: it never changes once it is made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "chat/chat_template.h"

namespace weft::chat {

class ToolTypes {
  public:
    // Knows no function.
    ToolTypes() = default;
    // tools: as ChatInput has them; what is none of it is passed over.
    explicit ToolTypes(const OrderedJson& tools);

    bool empty() const { return functions_.empty(); }
    bool Has(std::string_view function) const;

    // An argument that came as plain text, as a value of its parameter's type: the text itself
    // where it must be a string or is no JSON (nor True, False or None), else what it is as JSON.
    OrderedJson ValueOf(std::string_view function, std::string_view parameter,
                        std::string_view text) const;

  private:
    using Mask = uint32_t;  // of types
    using Parameters = std::map<std::string, Mask, std::less<>>;

    static Mask MaskOf(const OrderedJson& schema, int depth);
    static Mask NamedType(std::string_view name);
    static Mask TypeOf(const OrderedJson& value);
    Mask Find(std::string_view function, std::string_view parameter) const;

    std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace weft::chat
