// Texts that the model in training generates, for people to read beside its losses.
//
// Training has no KV cache: every token is a forward pass over the whole text, on all ranks, with
// the current weights. N tokens after a prompt of P tokens cost as much as training on N (P + N /
// 2) / 3 positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace weft::train {

struct SampleOptions {
    std::vector<std::string> prompts;
    int64_t every = 0;       // updates between two rounds; 0: at each evaluation
    int64_t tokens = 64;     // most tokens of each text
    double temperature = 0;  // 0: the most likely token
};

// Errors: kUsage, naming the flag.
Status CheckSampleOptions(const SampleOptions& words);

// Reads one prompt per line; a line that begins with " is a JSON string, for prompts of several
// lines. Errors: kUsage (no prompts, an invalid line), those of files.
Result<std::vector<std::string>> ReadPrompts(const std::string& path);

struct SampleText {
    std::string prompt, text;  // text: generated after the prompt
};

class TextSampler {
  public:
    // tokenizer: outlives it. sequence: most tokens of prompt and text. seed: every round draws
    // with the same seed, so texts differ only by the weights. Errors: kUsage (a prompt with no
    // tokens or too many), kCorrupt (the tokenizer of another model).
    static Result<TextSampler> Make(const SampleOptions& words,
                                    const tokenizer::Tokenizer& tokenizer, int64_t vocab,
                                    int64_t sequence, uint64_t seed);

    // Generates one text per prompt, the same on all ranks. Collective. Errors:
    // Trainer::NextToken's.
    Result<std::vector<SampleText>> Say(Trainer& trainer) const;

  private:
    struct Prompt {
        std::string text;
        std::vector<int32_t> tokens;
    };
    TextSampler(const SampleOptions& words, const tokenizer::Tokenizer& tokenizer, int64_t sequence,
                uint64_t seed)
        : words_(words), tokenizer_(&tokenizer), sequence_(sequence), seed_(seed) {}
    Result<std::string> Continue(Trainer& trainer, const Prompt& prompt, uint64_t seed) const;

    SampleOptions words_;
    const tokenizer::Tokenizer* tokenizer_;
    int64_t sequence_;
    uint64_t seed_;
    std::vector<Prompt> prompts_;
};

}  // namespace weft::train
