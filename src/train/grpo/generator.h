// Generates completions of prompts with the model in training: the generating chunks of the
// training Program (train/graph.h) read the weights in place, or with ZeRO 3 whole copies of the
// units, which Run gathers first.
//
// Each replica generates its share of the completions, many at a time: a step has one row for each
// running completion, and all rows of prompts that begin. The completions of a prompt that begin
// together share the prompt's pages. After each step, all ranks exchange the chosen tokens, so each
// rank knows all completions, and all plan the same next step. A token depends on the seed, the
// completion's number and its logits only, not on the layout (up to the rounding of logits).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "engine/sampling/sampler.h"
#include "program/model_chunk.h"
#include "train/grpo/options.h"
#include "train/parallel/groups.h"
#include "train/parallel/layout.h"

namespace weft::train {

// Sizes of the generating chunks.
struct GeneratorSize {
    int64_t sequence = 0;  // most tokens of a prompt and its completion
    int64_t most = 0;      // most tokens of a completion
    int64_t slots = 0;     // most completions that a replica generates at once
    int64_t prompts = 0;   // most prompts of these
    int64_t page_tokens = 64;

    int64_t pages() const;  // of each KV cache
};
// completions: of a replica's batch; page_tokens: of the device.
GeneratorSize SizeOf(const GrpoOptions& options, int64_t completions, int64_t sequence,
                     int64_t page_tokens);

struct Completion {
    std::vector<int32_t> tokens;  // with the end token, if it has one
    bool ended = false;           // false: it was cut off at the most tokens
};

// The generator uses these objects, which must outlive it.
struct GeneratorParts {
    backend::Executable& executable;
    backend::Device& device;
    const TrainGroups& groups;
    const TrainLayout& layout;
    std::span<const program::ModelChunk> chunks;
    int64_t width = 0;      // columns of logits
    int64_t most_rows = 0;  // of a step
    std::function<bool()> stops;
};

class Generator {
  public:
    Generator(GeneratorParts parts, const GrpoOptions& options, const GeneratorSize& size)
        : parts_(std::move(parts)), options_(options), size_(size) {}

    struct Request {
        std::span<const std::vector<int32_t>> prompts;  // each: 1 to sequence - most tokens
        std::function<bool(int32_t token)> ends;
        int64_t vocab = 0;  // tokens that may be chosen
        uint64_t seed = 0;
        int64_t step = 0;  // for messages between ranks
    };
    // options.group completions of each prompt, in order. Collective; all ranks get all
    // completions. Errors: those of links and of the executable; kCorrupt (logits that are not
    // finite); kCancelled.
    Result<std::vector<Completion>> Run(const Request& request);

  private:
    struct Replica;
    struct Rows;
    Status GatherWeights(const Request& request);
    Status Step(const Request& request, const Rows& rows, std::span<double> tokens);
    Status Choose(const Request& request, const Rows& rows, std::span<double> tokens);
    Status Exchange(const Request& request, std::span<double> tokens) const;

    const GeneratorParts parts_;
    const GrpoOptions options_;
    const GeneratorSize size_;
    std::vector<engine::Sampler> samplers_, workers_;  // by completion; by thread
    std::vector<float> logits_;
};

}  // namespace weft::train
