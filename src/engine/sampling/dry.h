// DRY ("don't repeat yourself"): a penalty for tokens that would continue a repetition of the text.
//
// If the last n tokens of the text occurred before, followed by token t, and n is at least
// `allowed`, the logit of t loses multiplier * base^(n - allowed). Breakers, such as a line break,
// end a repetition. Source: p-e-w, "DRY: A modern repetition penalty", text-generation-webui pull
// request 5677; details as in llama.cpp's sampler.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

struct DryOptions {
    float multiplier = 0;  // 0: off
    float base = 1.75f;
    int allowed = 2;           // longest repetition without a penalty
    int64_t last = INT64_MAX;  // number of last tokens that are searched; 0: off
    // One bit for each token that is a breaker alone.
    std::vector<uint32_t> breakers{};
    // Breakers of several tokens: a first token and the tokens behind it, which are an entry of
    // `rests`. Ordered by the first token.
    struct LongBreaker {
        int32_t first = 0;
        uint32_t rest = 0;
        auto operator<=>(const LongBreaker&) const = default;
    };
    std::vector<LongBreaker> long_breakers{};
    std::vector<std::vector<int32_t>> rests{};

    bool on() const { return multiplier != 0 && base >= 1 && last > 0; }
};

inline const std::vector<std::string>& UsualDryBreakers() {
    static const std::vector<std::string> usual = {"\n", ":", "\"", "*"};
    return usual;
}

// Sets the breakers of `options`: a token that contains one of the texts is a breaker, and so is a
// token that ends with the beginning of a text, if the tokens of the text's rest follow it. Uses
// the first kMostBreakerBytes of a text. Takes about a millisecond.
// Errors: kUsage: more than kMostLongBreakers breakers of several tokens, which a request keeps.
inline constexpr size_t kMostBreakerBytes = 40, kMostLongBreakers = 1 << 16;
Status SetDryBreakers(const tokenizer::Tokenizer& tokenizer, std::span<const std::string> texts,
                      DryOptions& options);

// Errors: kUsage; the message names an option that is out of range or not a number.
Status CheckDry(const DryOptions& options);

// Thread: one caller. Allocates only while its buffers grow.
class Dry {
  public:
    // Subtracts the penalties from `logits`. Time: proportional to the tokens searched.
    void Apply(const DryOptions& options, std::span<const int32_t> history,
               std::span<float> logits);

  private:
    struct Repeat {
        int32_t token, length;
    };
    std::vector<int32_t> back_;     // the tokens searched, newest first
    std::vector<int32_t> lengths_;  // [i]: number of newest tokens that back_ repeats from i on
    std::vector<Repeat> repeats_;
};

}  // namespace weft::engine
