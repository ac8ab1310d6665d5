// Tokenizes a template as jinja2 does with trim_blocks and lstrip_blocks, the settings for chat
// templates: the line end after a block tag is dropped, white space before a block tag at the start
// of a line is dropped, and "-" at one end of a tag strips all white space outside that end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::chat::jinja {

enum class TokenKind {
    kData,           // text outside tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,  // escapes are decoded
    kInteger,
    kFloat,
    kOperator,
    kEnd,
};

struct Token {
    TokenKind kind;
    std::string text;
    int line;
};

// Returns the tokens; kEnd is last. Throws Failure (kCorrupt) for invalid text.
std::vector<Token> Lex(std::string_view source);

}  // namespace weft::chat::jinja
