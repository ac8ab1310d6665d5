// Fuzzes grammars in GBNF, and regular expressions if the input begins with '/'. The bytes after a
// line "---" choose the tokens that follow a compiled grammar.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/gbnf.h"
#include "grammar/regex_grammar.h"
#include "support/grammar_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::grammar;
    const std::string_view input(reinterpret_cast<const char*>(bytes), size);
    const size_t cut = input.find("\n---\n");
    const std::string_view source = input.substr(0, cut);
    const std::string_view choices = cut == input.npos ? "abcdefgh" : input.substr(cut + 5);
    const auto grammar =
        source.starts_with('/') ? GrammarFromRegex(source.substr(1)) : GrammarFromGbnf(source);
    if (grammar.ok()) {
        ProbeGrammar(*grammar, choices);
    } else {
        WEFT_CHECK(!grammar.error().message.empty());
    }
    return 0;
}
