#include "engine/start/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/deadline.h"
#include "engine/batch/scheduler.h"
#include "engine/rank/sum_wire.h"
#include "engine/sampling/sampler.h"

namespace weft::engine {
namespace {

double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
    const double best = *std::ranges::max_element(logits);
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
    return std::log(sum) - (static_cast<double>(logits[static_cast<size_t>(target)]) - best);
}

// Errors: kCorrupt, if a row has NaN or no finite maximum.
Status CheckLogits(std::span<const float> logits, size_t vocab) {
    for (size_t at = 0; at < logits.size(); at += vocab) {
        const auto row = logits.subspan(at, vocab);
        const auto nan = std::ranges::find_if(row, [](float logit) { return std::isnan(logit); });
        WEFT_TRY(CheckBest(nan == row.end() ? std::ranges::max(row) : *nan));
    }
    return {};
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab) {
    std::mt19937 random(1);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens)
        token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    return tokens;
}

Status CheckTokens(StepRunner& runner, std::span<const int32_t> tokens) {
    if (tokens.empty())
        return MakeError(ErrorCode::kUsage, "no tokens were given; expected at least one");
    const int64_t room = runner.job().ctx;
    if (static_cast<int64_t>(tokens.size()) > room) {
        return MakeError(ErrorCode::kUsage,
                         "there are {} tokens; the context holds {}. Raise it with --ctx, or give "
                         "fewer",
                         tokens.size(), room);
    }
    return CheckVocabulary(tokens, runner.rank().hyper().vocab);
}

// Sequences with equally many rows, each on its own pages.
class Rows {
  public:
    // ask: the request for each row with logits.
    Rows(StepRunner& runner, int64_t seqs, const RowRequest& ask = {})
        : runner_(runner), seqs_(seqs), ask_(ask) {}

    // Runs the next rows of each sequence, the first at `position`: first the rows of sequence 0,
    // then of 1, ... The last `outputs` rows of each have logits. narrow: see
    // StepData::Sequence::prompt_rows.
    Status Run(std::span<const int32_t> tokens, int64_t position, int64_t outputs,
               bool narrow = false) {
        StepData& step = runner_.step();
        step.Clear();
        Rank& rank = runner_.rank();
        const int64_t each = static_cast<int64_t>(tokens.size()) / seqs_;
        const int64_t pages = (position + each + rank.page_tokens() - 1) / rank.page_tokens();
        const int64_t stride = rank.kv_pages() / seqs_;
        if (position == 0) begun_ = false;
        for (int64_t s = 0; s < seqs_; ++s) {
            StepData::Sequence sequence;
            sequence.adapter = runner_.job().adapters.empty() ? 0 : 1;
            sequence.pages.resize(static_cast<size_t>(pages));
            std::iota(sequence.pages.begin(), sequence.pages.end(),
                      static_cast<int32_t>(s * stride));
            sequence.state_to = static_cast<int32_t>(s);
            if (begun_) sequence.state_from = sequence.state_to;
            sequence.prompt_rows = narrow ? static_cast<int32_t>(each) : 0;
            step.Append(tokens.subspan(static_cast<size_t>(s * each), static_cast<size_t>(each)),
                        position, std::move(sequence));
            const auto end = static_cast<int32_t>(step.tokens.size());
            for (auto row = end - static_cast<int32_t>(outputs); row < end; ++row) {
                step.output_rows.push_back(row);
            }
        }
        begun_ = true;
        if (runner_.layout().pp > 1) step.asks.assign(step.output_rows.size(), ask_);
        return runner_.Run();
    }
    // All logits of the last step.
    Result<std::span<const float>> Logits() {
        const auto rows = static_cast<int64_t>(runner_.step().output_rows.size());
        WEFT_TRY(runner_.rank().ReadLogits(rows, buffer_));
        WEFT_TRY(CheckLogits(buffer_, static_cast<size_t>(runner_.rank().hyper().vocab)));
        return std::span<const float>(buffer_);
    }

    // Runs all rows in steps, like a prompt, with logits after the last row of each sequence. (With
    // several sequences, the steps decide which tokens of `tokens` a sequence gets.)
    Status RunPrompts(std::span<const int32_t> tokens) {
        runner_.cluster().SetPhase("prefill");
        const int64_t count = static_cast<int64_t>(tokens.size()) / seqs_;
        const int64_t rows = PromptChunk(static_cast<int64_t>(tokens.size()),
                                         runner_.job().step_rows(), runner_.layout().pp);
        const int64_t at_once = std::clamp<int64_t>(rows / seqs_, 1, count);
        for (int64_t at = 0; at < count; at += at_once) {
            const int64_t each = std::min(at_once, count - at);
            WEFT_TRY(Run(
                tokens.subspan(static_cast<size_t>(at * seqs_), static_cast<size_t>(each * seqs_)),
                at, at + each == count ? 1 : 0, NarrowTokens(count) > 0));
        }
        return {};
    }

  private:
    StepRunner& runner_;
    int64_t seqs_;
    RowRequest ask_;
    bool begun_ = false;  // the slots hold the sequences' recurrent state
    std::vector<float> buffer_;
};

constexpr RowRequest kGreedyRequest{RowRequest::Kind::kBest, 1, {}};

// Between steps the ranks are idle.
template <typename T>
Result<T> Explained(StepRunner& runner, Result<T> result) {
    runner.rank().SetIdle(true);
    if (result.ok()) return result;
    return runner.Fail(result.error());
}

// Adds the negative log-likelihoods of the second half of one chunk.
Status ScoreChunk(StepRunner& runner, std::span<const int32_t> chunk, double& sum, double& squares,
                  int64_t& scored) {
    std::vector<int32_t> tokens(chunk.begin(), chunk.end());
    const tokenizer::TokenizerData& words = runner.tokenizer().data();
    if (words.add_bos) tokens[0] = words.bos;
    const size_t first = tokens.size() / 2;
    const auto vocab = static_cast<size_t>(runner.rank().hyper().vocab);
    const auto step = static_cast<size_t>(std::min(runner.job().chunk, runner.job().max_outputs));
    Rows rows(runner, 1);
    for (size_t at = 0; at < tokens.size(); at += step) {
        const size_t count = std::min(step, tokens.size() - at);
        const size_t skip = at >= first ? 0 : std::min(first - at, count);
        WEFT_TRY(rows.Run(std::span(tokens).subspan(at, count), static_cast<int64_t>(at),
                          static_cast<int64_t>(count - skip)));
        WEFT_ASSIGN(const auto logits, rows.Logits());
        for (size_t row = at + skip; row < at + count && row + 1 < tokens.size(); ++row) {
            const auto mine = logits.subspan((row - at - skip) * vocab, vocab);
            const double nll = NegativeLogLikelihood(mine, tokens[row + 1]);
            sum += nll;
            squares += nll * nll;
            ++scored;
        }
    }
    return {};
}

}  // namespace

Result<std::vector<float>> Logits(StepRunner& runner, std::span<const int32_t> tokens, bool all) {
    WEFT_TRY(CheckTokens(runner, tokens));
    const auto run = [&]() -> Result<std::vector<float>> {
        Rows rows(runner, 1);
        std::vector<float> result;
        if (!all) {
            WEFT_TRY(rows.RunPrompts(tokens));
            WEFT_ASSIGN(const auto logits, rows.Logits());
            result.assign(logits.begin(), logits.end());
            return result;
        }
        const auto chunk = static_cast<size_t>(
            std::min(runner.job().chunk, std::max<int64_t>(1, runner.job().max_outputs)));
        for (size_t at = 0; at < tokens.size(); at += chunk) {
            const size_t count = std::min(chunk, tokens.size() - at);
            WEFT_TRY(rows.Run(tokens.subspan(at, count), static_cast<int64_t>(at),
                              static_cast<int64_t>(count)));
            WEFT_ASSIGN(const auto logits, rows.Logits());
            result.insert(result.end(), logits.begin(), logits.end());
        }
        return result;
    };
    return Explained(runner, run());
}

Result<Perplexity> ScoreText(StepRunner& runner, std::string_view text, int64_t ctx,
                             const PerplexityProgress& progress) {
    const std::vector<int32_t> tokens = runner.tokenizer().Encode(text, {.add_special = true});
    const auto size = static_cast<int64_t>(tokens.size());
    if (ctx < 4 || ctx > runner.job().ctx || size < 2 * ctx) {
        return MakeError(ErrorCode::kUsage,
                         "the text has {} tokens; perplexity in chunks of {} needs at least {}. "
                         "Give more text or a smaller --ctx.",
                         size, ctx, 2 * ctx);
    }
    const auto run = [&]() -> Result<Perplexity> {
        Perplexity result;
        result.chunks = size / ctx;
        double sum = 0, squares = 0;
        for (int64_t chunk = 0; chunk < result.chunks; ++chunk) {
            const auto rows = std::span(tokens).subspan(static_cast<size_t>(chunk * ctx),
                                                        static_cast<size_t>(ctx));
            WEFT_TRY(ScoreChunk(runner, rows, sum, squares, result.tokens));
            const double n = static_cast<double>(result.tokens);
            result.value = std::exp(sum / n);
            const double variance = std::max(0.0, squares / n - (sum / n) * (sum / n));
            result.error = n > 1 ? result.value * std::sqrt(variance / (n - 1)) : 0;
            if (progress) progress(chunk + 1, result.chunks, result.value);
        }
        return result;
    };
    return Explained(runner, run());
}

Result<double> TimePrompts(StepRunner& runner, int64_t seqs, int64_t count) {
    const auto tokens = RandomTokens(seqs * count, runner.rank().hyper().vocab);
    const auto run = [&]() -> Result<double> {
        Rows rows(runner, seqs, kGreedyRequest);
        const int64_t begin_ns = NowNs();
        WEFT_TRY(rows.RunPrompts(tokens));
        return SecondsSince(begin_ns);
    };
    return Explained(runner, run());
}

Result<double> TimeTokens(StepRunner& runner, int64_t seqs, int64_t count, int64_t depth) {
    const auto tokens = RandomTokens(seqs + count, runner.rank().hyper().vocab);
    const auto run = [&]() -> Result<double> {
        runner.cluster().SetPhase("decode");
        Rows rows(runner, seqs, kGreedyRequest);
        const int64_t begin_ns = NowNs();
        for (int64_t i = 0; i < count; ++i) {
            const auto next = std::span(tokens).subspan(static_cast<size_t>(i));
            WEFT_TRY(rows.Run(next.first(static_cast<size_t>(seqs)), depth + i, 1));
        }
        return SecondsSince(begin_ns);
    };
    return Explained(runner, run());
}

Result<std::vector<RankReport>> SurveyRanks(StepRunner& runner) {
    return Explained(runner, runner.rank().Survey(++runner.step().number));
}

}  // namespace weft::engine
