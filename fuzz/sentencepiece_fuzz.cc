// Fuzzes SentencePiece's .model files; the text to encode is the end of the file itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/read_sentencepiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::tokenizer;
    const std::string_view input(reinterpret_cast<const char*>(bytes), size);
    const auto tokenizer = ReadSentencePiece(input, {});
    if (!tokenizer.ok()) {
        WEFT_CHECK(!tokenizer.error().message.empty());
        return 0;
    }
    const std::string_view text = input.substr(input.size() - std::min<size_t>(input.size(), 200));
    for (const bool parse : {false, true}) {
        const auto ids = (*tokenizer)->Encode(text, {.parse_special = parse});
        for (const int32_t id : ids) WEFT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
        (*tokenizer)->Decode(ids);
    }
    return 0;
}
