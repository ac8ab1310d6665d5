// Small handmade vocabularies for tests of tokenizers and of code that uses them.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// GPT-2's spelling of a byte, as UTF-8.
inline std::string SpellByte(int byte) {
    static const auto spelling = [] {
        std::vector<std::string> made(256);
        int next = 0x100;
        for (int b = 0; b < 256; ++b) {
            const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
            const int point = itself ? b : next++;
            if (point < 0x80) {
                made[static_cast<size_t>(b)] = std::string(1, static_cast<char>(point));
            } else {
                made[static_cast<size_t>(b)] = {static_cast<char>(0xC0 | (point >> 6)),
                                                static_cast<char>(0x80 | (point & 0x3F))};
            }
        }
        return made;
    }();
    return spelling[static_cast<size_t>(byte)];
}

// Byte-level BPE: token b is byte b (0 to 255), followed by the results of the merges in order, and
// the control tokens <|endoftext|>, <|im_start|>, <|im_end|>.
inline TokenizerData TinyBytePair(const std::vector<std::string>& merges = {}) {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    for (int byte = 0; byte < 256; ++byte) data.tokens.push_back(SpellByte(byte));
    for (const std::string& merge : merges) {
        const size_t space = merge.find(' ');
        data.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
    }
    data.merges = merges;
    data.types.assign(data.tokens.size(), 1);
    for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
        data.tokens.push_back(name);
        data.types.push_back(3);
    }
    data.eos = static_cast<int32_t>(data.tokens.size()) - 3;
    return data;
}

// SPM: 0 <unk>, 1 <s>, 2 </s>, bytes from 3, then `words` with the scores -1, -2, ...
inline TokenizerData TinySpm(const std::vector<std::string>& words = {}) {
    TokenizerData data;
    data.model = "llama";
    data.tokens = {"<unk>", "<s>", "</s>"};
    data.types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
        static const char* kHex = "0123456789ABCDEF";
        data.tokens.push_back({'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'});
        data.types.push_back(6);
    }
    data.scores.assign(data.tokens.size(), 0);
    for (const std::string& word : words) {
        data.tokens.push_back(word);
        data.types.push_back(1);
        data.scores.push_back(-static_cast<float>(data.tokens.size()));
    }
    data.bos = 1;
    data.eos = 2;
    data.unk = 0;
    data.add_bos = true;
    data.add_space_prefix = true;
    return data;
}

}  // namespace weft::tokenizer
