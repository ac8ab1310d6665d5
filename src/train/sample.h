// Texts that a model in training says, for people to read beside its losses.
//
// There is no KV cache in training: every token is a forward pass over the whole text so far, on
// all ranks, with the weights as they are. N tokens behind a prompt of P cost what learning from
// N (P + N / 2) / 3 positions does.
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
    int64_t every = 0;       // updates from one time to the next; 0: at each evaluation
    int64_t tokens = 64;     // at most, of each text
    double temperature = 0;  // 0: the most likely token
};

// Errors: kUsage, naming the flag.
Status CheckSampleOptions(const SampleOptions& words);

// A prompt a line; a line that begins with " is a JSON string, for prompts of several lines.
// Errors: kUsage (no prompts, a line that is none), those of files.
Result<std::vector<std::string>> ReadPrompts(const std::string& path);

struct SampleText {
    std::string prompt, text;  // text: what was said behind the prompt
};

class TextSampler {
  public:
    // tokenizer: outlives it. sequence: the most tokens of prompt and text. seed: of what is drawn;
    // every time is drawn alike, so that texts differ by what was learnt. Errors: kUsage (a prompt
    // of no tokens or too many), kCorrupt (a tokenizer of another model).
    static Result<TextSampler> Make(const SampleOptions& words,
                                    const tokenizer::Tokenizer& tokenizer, int64_t vocab,
                                    int64_t sequence, uint64_t seed);

    // One text a prompt, the same on all ranks, which all call it. Errors: Trainer::NextToken's.
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
