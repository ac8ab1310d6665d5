// Fuzzes tokenizers: makes a vocabulary from the input, then encodes and decodes text with it.
//
// The input is cut at line ends. First line: one letter for the family (b, s), one for the
// pre-tokenizer, digits for options. Then lines "type score token" up to an empty line, lines of
// merges up to another, and the rest is text. 'B' and 'S' add all byte tokens first, so that most
// inputs reach the encoder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {
namespace {

std::string_view Line(std::string_view& input) {
    const size_t end = input.find('\n');
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
    return line;
}

TokenizerData Start(std::string_view head) {
    const char family = head.empty() ? 'B' : head[0];
    TokenizerData data;
    if (family == 'B') data = TinyBytePair();
    if (family == 'S') data = TinySpm();
    if (family == 'b') data.model = "gpt2";
    if (family == 's') data.model = "llama";
    const char* names[] = {"gpt-2", "default", "deepseek-llm", "llama-bpe", "qwen2", "smollm", "?"};
    if (head.size() > 1) data.pre = names[static_cast<uint8_t>(head[1]) % std::size(names)];
    int32_t* ids[] = {&data.bos, &data.eos, &data.unk, &data.eot};
    for (size_t i = 2; i < head.size() && i < 6; ++i) *ids[i - 2] = head[i] - '0';
    for (const char c : head) {
        if (c == '+') data.add_bos = true;
        if (c == '$') data.add_eos = true;
        if (c == '_') data.add_space_prefix = !data.add_space_prefix;
    }
    return data;
}

TokenizerData ReadVocabulary(std::string_view& input) {
    TokenizerData data = Start(Line(input));
    for (std::string_view line = Line(input); !line.empty(); line = Line(input)) {
        data.types.push_back(line[0] - '0');
        if (data.model == "llama") {
            data.scores.push_back(line.size() > 1 ? static_cast<float>(line[1]) : 0);
        }
        data.tokens.emplace_back(line.size() > 2 ? line.substr(2) : "");
    }
    for (std::string_view line = Line(input); !line.empty(); line = Line(input)) {
        data.merges.emplace_back(line);
    }
    return data;
}

void Check(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
    const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
    std::string streamed;
    StreamDecoder decoder(tokenizer, parse_special);
    for (const int32_t id : ids) {
        WEFT_CHECK(id >= 0 && id < tokenizer.vocab_size());
        const std::string part = decoder.Push(id);
        WEFT_CHECK(IsUtf8(part));
        streamed += part;
    }
    streamed += decoder.Flush();
    const std::string decoded = tokenizer.Decode(ids, parse_special);
    if (IsUtf8(decoded) && !tokenizer.data().add_space_prefix) WEFT_CHECK(streamed == decoded);
}

}  // namespace
}  // namespace weft::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::tokenizer;
    std::string_view input(reinterpret_cast<const char*>(bytes), size);
    const auto tokenizer = Tokenizer::Make(ReadVocabulary(input));
    if (!tokenizer.ok()) {
        WEFT_CHECK(!tokenizer.error().message.empty());
        return 0;
    }
    Check(**tokenizer, input, false);
    Check(**tokenizer, input, true);
    return 0;
}
