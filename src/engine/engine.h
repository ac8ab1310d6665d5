// Engine: rank 0's side of a run. Turns prompts into steps, steps into logits, logits into tokens.
//
//     WEFT_ASSIGN(auto engine, Engine::Start(options));       // launches the cluster, loads
//     WEFT_ASSIGN(Generation g, engine->Generate(request, [](std::string_view text) { ... }));
//     WEFT_TRY(engine->Finish());                             // ends all ranks, gathers reports
//
// The prompt is prefilled in chunks (in every layout); KV lives in pages that a step names, so
// that a step may carry several sequences.
// With a drafter (drafter.h) a step of decoding takes the last token and some guesses of what comes
// after it, and as many tokens come out of it as the sampler agrees with, and one more. Rows do not
// depend on the other rows of a step: greedy answers, and all with --lookup, are to the token those
// without a drafter; answers that are drawn with a draft model have the same distribution. KV rows
// of tokens that were refused are written over by the next step.
// Errors: those of the ranks, worded by the cluster, once.
// Where the cluster recovers, Generate gets over the loss of a rank: the KV cache is rebuilt from
// the tokens so far, and the answer goes on after a pause, the same to the token.
// ClusterOptions::stop ends what runs with kCancelled, with one rank, too.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/drafter.h"
#include "engine/job.h"
#include "engine/rank.h"
#include "engine/recovery.h"
#include "engine/sampler.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

struct GenerateRequest {
    std::vector<int32_t> prompt;
    int64_t max_tokens = 128;
    bool ignore_eos = false;
    std::vector<std::string> stop;  // texts that end the answer; not part of it
    SamplerOptions sampler;
};

struct Generation {
    std::string text;
    std::vector<int32_t> tokens;
    int64_t prompt_tokens = 0;
    double prefill_s = 0, decode_s = 0;
    std::string finish;                 // "eos", "length", "stop" or "context"
    int64_t steps = 0;                  // of decoding
    int64_t drafted = 0, accepted = 0;  // tokens, checked by these steps
    double prefill_tok_s() const;
    // The first token comes out of the prefill: decoding made the others.
    double decode_tok_s() const;
    double acceptance() const;       // of drafted tokens; 0 without any
    double tokens_per_step() const;  // of decoding; 0 without any
};

struct Perplexity {
    double value = 0;    // exp of the mean negative log-likelihood
    double error = 0;    // one standard error of it
    int64_t tokens = 0;  // scored
    int64_t chunks = 0;
};

class Engine {
  public:
    // job.ctx 0: the model's context, at most 4096. All rows use the job's first adapter, where it
    // has any. tokenizer: the model's, where the caller has
    // read it already. draft: a draft model runs on rank 0 alone, on its threads.
    static Result<std::unique_ptr<Engine>> Start(
        const cluster::ClusterOptions& cluster, Job job,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr, const DraftOptions& draft = {});
    ~Engine();

    const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
    Rank& rank() { return *rank_; }
    cluster::Cluster& cluster() { return *cluster_; }
    // Losses that were got over, in order.
    const std::vector<Recovery>& recoveries() const { return recoveries_; }

    using TextSink = std::function<void(std::string_view)>;
    Result<Generation> Generate(const GenerateRequest& request, const TextSink& sink = nullptr);
    // Logits after the last token, or after each of them: [tokens.size() or 1, vocab].
    Result<std::vector<float>> Logits(std::span<const int32_t> tokens, bool all);
    // llama.cpp's definition: the text in chunks of `ctx` tokens (each beginning with BOS where the
    // model has it), the second half of each chunk scored.
    using Progress = std::function<void(int64_t chunk, int64_t chunks, double value)>;
    Result<Perplexity> ScoreText(std::string_view text, int64_t ctx, const Progress& progress);
    // Runs `count` prompt tokens (random ids) from an empty cache, or `count` single-token steps at
    // position `depth`; the seconds they took. For benchmarks.
    Result<double> TimePrefill(int64_t count);
    Result<double> TimeDecode(int64_t count, int64_t depth);
    // The same for `seqs` sequences at once: their prompts one after the other in whole steps, or
    // `count` steps of a token of each.
    Result<double> TimePrefills(int64_t seqs, int64_t count);
    Result<double> TimeDecodes(int64_t seqs, int64_t count, int64_t depth);

    // Ends the job on all ranks and gathers their reports (those before the end, for a summary).
    Result<std::vector<RankReport>> Finish();

  private:
    Engine() = default;
    Status RunStep(std::span<const int32_t> tokens, int64_t position,
                   std::span<const int32_t> output_rows);
    Status RunRowsOf(int64_t seqs, int64_t each, std::span<const int32_t> tokens, int64_t position);
    Status RunAll(std::span<const int32_t> tokens, int64_t position, size_t first,
                  std::span<float> out);
    Status MakeDrafter(const DraftOptions& draft, const cluster::ClusterOptions& options);
    class Answer;
    Status Decode(const GenerateRequest& request, Answer& answer, Generation& generation);
    Status SayRows(Sampler& sampler, Answer& answer, Generation& generation);
    Status NextRows(std::span<const int32_t> history, int64_t most, Generation& generation);
    Status ScoreChunk(std::span<const int32_t> chunk, double& sum, double& squares,
                      int64_t& scored);
    // Runs tokens at `position` of the one sequence; the logits of the last `outputs` of them.
    Status RunRows(std::span<const int32_t> tokens, int64_t position, size_t outputs);
    int32_t adapter() const { return job_.adapters.empty() ? 0 : 1; }
    size_t ChunkFor(size_t prompt_tokens) const;
    Status Prefill(std::span<const int32_t> tokens, size_t outputs);
    // After a step with that outcome: where it failed by a loss that can be got over, `tokens` (all
    // so far) are run again. In the end the logits of the last `outputs` are there.
    Status Replay(std::span<const int32_t> tokens, size_t outputs, Status outcome);
    Status CheckTokens(std::span<const int32_t> tokens, int64_t more) const;
    template <typename T>
    Result<T> Explain(Result<T> result);

    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    Job job_;
    std::vector<Recovery> recoveries_;
    StepData step_;
    std::vector<float> logits_;
    std::unique_ptr<Drafter> drafter_;  // a draft model counts as progress of rank_: it outlives it
    int64_t most_drafts_ = 0;
    Draft draft_;      // of the step whose logits are there
    StepCosts costs_;  // of steps in decoding
    std::vector<int32_t> rows_;
    std::vector<int32_t> wanted_rows_;
    bool finished_ = false;
    bool over_ = false;  // recovery failed: its error has the last word
};

template <typename T>
Result<T> Engine::Explain(Result<T> result) {
    if (rank_ != nullptr) rank_->SetIdle(true);
    if (result.ok()) return result;
    finished_ = true;
    if (over_) return result;
    return cluster_->ReportFailure(result.error());
}

// A worker's whole life: reads the job, opens its rank, follows rank 0 to the end; or measures the
// fabric (net.h).
Status Work(cluster::Cluster& cluster);

}  // namespace weft::engine
