#include "engine/sampling/dry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace weft::engine {
namespace {

constexpr size_t kMostTail = 20;  // tokens of a breaker after its first

// The largest exponent at which base^exponent is a float.
int MostExponent(float base) {
    constexpr float kLogOfLargest = 88.7228391f;
    if (base <= 1.000001f) return 0;
    return static_cast<int>(kLogOfLargest / std::log(base));
}

bool IsBreaker(const DryOptions& options, int32_t token) {
    const auto word = static_cast<size_t>(token) / 32;
    return token >= 0 && word < options.breakers.size() &&
           (options.breakers[word] >> (token % 32) & 1u) != 0;
}

// Returns the number of newest tokens after the last breaker, or of all tokens if no breaker is
// among them. back: the newest token is first.
size_t AfterBreaker(const DryOptions& options, std::span<const int32_t> back) {
    for (size_t i = 0; i < back.size(); ++i) {
        size_t length = IsBreaker(options, back[i]) ? 1 : 0;
        const auto& breakers = options.long_breakers;
        auto next =
            std::ranges::lower_bound(breakers, back[i], {}, &DryOptions::LongBreaker::first);
        for (; next != breakers.end() && next->first == back[i]; ++next) {
            const std::vector<int32_t>& rest = options.rests[next->rest];
            if (rest.size() < length || rest.size() > i) continue;
            const auto at = back.subspan(i - rest.size(), rest.size());
            if (std::equal(rest.begin(), rest.end(), at.rbegin())) length = rest.size() + 1;
        }
        if (length > 0) return i + 1 - length;
    }
    return back.size();
}

// Sets lengths[i] to the number of first values that `values` repeats from i on, at most `most`
// (the Z algorithm, Gusfield 1997). lengths[0] is 0.
void SetRepeats(std::span<const int32_t> values, int32_t most, std::vector<int32_t>& lengths) {
    const auto size = static_cast<int32_t>(values.size());
    lengths.assign(values.size(), 0);
    const auto at = [&](int32_t i) { return values[static_cast<size_t>(i)]; };
    int32_t left = 0, right = 0;  // values[left, right) repeat the first ones
    for (int32_t i = 1; i < size; ++i) {
        int32_t& length = lengths[static_cast<size_t>(i)];
        if (i < right) length = std::min(right - i, lengths[static_cast<size_t>(i - left)]);
        while (length < most && i + length < size && at(length) == at(i + length)) ++length;
        if (i + length > right) {
            left = i;
            right = i + length;
        }
    }
}

// The place of the tokens of `text` in options.rests. known: the places of the texts so far.
uint32_t RestOf(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                std::map<std::string_view, uint32_t>& known, DryOptions& options) {
    const auto [place, added] =
        known.try_emplace(text, static_cast<uint32_t>(options.rests.size()));
    if (!added) return place->second;
    std::vector<int32_t> tokens = tokenizer.Encode(text, {.add_special = false});
    tokens.resize(std::min(tokens.size(), kMostTail));
    options.rests.push_back(std::move(tokens));
    return place->second;
}

Error TooManyBreakers() {
    return MakeError(ErrorCode::kUsage,
                     "more than {} pairs of a token and a breaker: a breaker of several letters "
                     "counts once for each token that ends with its beginning. Give fewer breakers",
                     kMostLongBreakers);
}

}  // namespace

Status SetDryBreakers(const tokenizer::Tokenizer& tokenizer, std::span<const std::string> texts,
                      DryOptions& options) {
    const int32_t vocab = tokenizer.vocab_size();
    options.breakers.assign((static_cast<size_t>(vocab) + 31) / 32, 0);
    options.long_breakers.clear();
    options.rests.clear();
    std::array<std::vector<std::string_view>, 256> by_first;
    for (const std::string_view text : texts) {
        if (text.empty()) continue;
        by_first[static_cast<unsigned char>(text[0])].push_back(text.substr(0, kMostBreakerBytes));
    }
    std::map<std::string_view, uint32_t> rests;
    for (int32_t token = 0; token < vocab; ++token) {
        const std::string_view piece = tokenizer.Piece(token);
        for (size_t i = 0; i < piece.size(); ++i) {
            for (const std::string_view text : by_first[static_cast<unsigned char>(piece[i])]) {
                const std::string_view tail = piece.substr(i);
                if (tail.starts_with(text)) {
                    options.breakers[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
                } else if (text.starts_with(tail) && piece.find(text) == std::string::npos) {
                    options.long_breakers.push_back(
                        {token, RestOf(tokenizer, text.substr(tail.size()), rests, options)});
                    if (options.long_breakers.size() > kMostLongBreakers) return TooManyBreakers();
                }
            }
        }
    }
    std::ranges::sort(options.long_breakers);
    return {};
}

Status CheckDry(const DryOptions& o) {
    const auto wrong = [](const char* name, auto value, const char* expected) {
        return MakeError(ErrorCode::kUsage, "--dry-{} {}: expected {}", name, value, expected);
    };
    if (!(o.multiplier >= 0 && o.multiplier <= 100)) {
        return wrong("multiplier", o.multiplier, "0 (off) to 100");
    }
    if (!(o.base >= 0 && o.base <= 100)) return wrong("base", o.base, "0 to 100; below 1: off");
    if (o.allowed < 0) return wrong("allowed-length", o.allowed, "0 or more");
    if (o.last < 0) return wrong("penalty-last-n", o.last, "-1 (all), 0 (off) or more");
    return {};
}

void Dry::Apply(const DryOptions& options, std::span<const int32_t> history,
                std::span<float> logits) {
    if (!options.on()) return;
    const size_t count = std::min(history.size(), static_cast<size_t>(options.last));
    const auto allowed = static_cast<size_t>(options.allowed);
    if (count <= allowed) return;
    const auto searched = history.last(count);
    back_.assign(searched.rbegin(), searched.rend());
    const size_t most = AfterBreaker(options, back_);
    if (most < allowed) return;
    SetRepeats(back_, static_cast<int32_t>(most), lengths_);
    repeats_.clear();
    for (size_t i = 1; i < count; ++i) {
        if (lengths_[i] < options.allowed) continue;
        const int32_t next = back_[i - 1];  // the token after the repeated ones
        if (next >= 0 && static_cast<size_t>(next) < logits.size()) {
            repeats_.push_back({next, lengths_[i]});
        }
    }
    // The longest repetition that a token continues counts.
    std::ranges::sort(repeats_, [](const Repeat& a, const Repeat& b) {
        return a.token != b.token ? a.token < b.token : a.length > b.length;
    });
    const int most_exponent = MostExponent(options.base);
    for (size_t i = 0; i < repeats_.size(); ++i) {
        const auto [token, length] = repeats_[i];
        if ((i > 0 && repeats_[i - 1].token == token) || IsBreaker(options, token)) continue;
        int exponent = length - options.allowed;
        if (most_exponent > 0) exponent = std::min(exponent, most_exponent);
        const auto penalty = static_cast<float>(double{options.multiplier} *
                                                std::pow(double{options.base}, exponent));
        float& logit = logits[static_cast<size_t>(token)];
        if (std::isfinite(logit)) logit -= std::min(penalty, 1e30f);
    }
}

}  // namespace weft::engine
