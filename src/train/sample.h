// Generates texts with the model in training, so that people can judge it by more than the loss.
//
// Training has no KV cache: every token is a forward pass over the whole text, on all ranks, with
// the current weights. To generate N tokens after a prompt of P tokens takes as much time as
// training on N (P + N / 2) / 3 positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace weft::train {

struct SampleOptions {
    std::vector<std::string> prompts;
    int64_t every = 0;       // updates between two rounds of texts; 0: a round at each evaluation
    int64_t tokens = 64;     // most tokens of each text
    double temperature = 0;  // 0: the most likely token
};

// Errors: kUsage; the message names the flag.
Status CheckSampleOptions(const SampleOptions& words);

// Reads one prompt per line; a line that begins with " is a JSON string, for prompts of several
// lines. Errors: kUsage (no prompts, an invalid line), errors of files.
Result<std::vector<std::string>> ReadPrompts(const std::string& path);

struct SampleText {
    std::string prompt, text;  // text: generated, without the prompt
};

class TextSampler {
  public:
    // `tokenizer` must outlive this object. sequence: most tokens of prompt and text together.
    // seed: every round uses the same seed, so texts of two rounds differ only because the weights
    // do. Errors: kUsage (a prompt with no or too many tokens), kCorrupt (the tokenizer belongs to
    // another model).
    static Result<TextSampler> Make(const SampleOptions& words,
                                    const tokenizer::Tokenizer& tokenizer, int64_t vocab,
                                    int64_t sequence, uint64_t seed);

    // Generates one text per prompt; all ranks get the same texts. Fewer texts: a rank requested a
    // stop (Trainer::SetStopRequest). Collective. Errors: those of Trainer::NextToken.
    Result<std::vector<SampleText>> Say(Trainer& trainer) const;

  private:
    struct Prompt {
        std::string text;
        std::vector<int32_t> tokens;
    };
    TextSampler(const SampleOptions& words, const tokenizer::Tokenizer& tokenizer, int64_t sequence,
                uint64_t seed)
        : words_(words), tokenizer_(&tokenizer), sequence_(sequence), seed_(seed) {}
    Result<std::optional<std::string>> Continue(Trainer& trainer, const Prompt& prompt,
                                                uint64_t seed) const;

    SampleOptions words_;
    const tokenizer::Tokenizer* tokenizer_;
    int64_t sequence_;
    uint64_t seed_;
    std::vector<Prompt> prompts_;
};

}  // namespace weft::train
