#include "train/grpo/generator.h"

#include <algorithm>

#include "engine/batch/pages.h"
#include "engine/sampling/logits_row.h"
#include "engine/sampling/sampler.h"
#include "train/data/random.h"

namespace weft::train {
namespace {

constexpr int64_t kDefaultSlots = 64;
// The token of a row whose logits are not finite.
constexpr double kNoToken = -1e9;

int64_t PagesOf(int64_t tokens, int64_t page_tokens) {
    return (tokens + page_tokens - 1) / page_tokens;
}

}  // namespace

// The pages of completions, the first of which has the end of the prompt, and the pages of the
// prompts that may run at once.
int64_t GeneratorSize::pages() const {
    return slots * (PagesOf(most, page_tokens) + 1) +
           prompts * PagesOf(sequence - most, page_tokens);
}

GeneratorSize SizeOf(const GrpoOptions& options, int64_t completions, int64_t sequence,
                     int64_t page_tokens) {
    GeneratorSize size;
    size.sequence = sequence;
    size.most = options.most_tokens;
    size.slots = std::min(completions, options.slots > 0 ? options.slots : kDefaultSlots);
    size.prompts = size.slots / options.group + 2;  // (the first and the last may be incomplete)
    size.page_tokens = page_tokens;
    return size;
}

// The rows of a replica's next step.
struct Generator::Rows {
    std::vector<int32_t> tokens, positions, output_rows;
    std::vector<backend::StepSequence> sequences;
    std::vector<backend::PageCopy> copies;
    std::vector<std::pair<size_t, int32_t>> chosen;  // completion, and its row of logits
};

// The completions of one replica.
struct Generator::Replica {
    struct Running {
        size_t completion = 0;
        int32_t position = 0;  // of the next row
        std::vector<int32_t> pages;
    };

    Replica(const Request& request_, const GeneratorSize& size_, int64_t group_, size_t begin,
            size_t end)
        : request(request_),
          size(size_),
          group(static_cast<size_t>(group_)),
          next(begin),
          last(end),
          pool(size_.pages()) {}

    bool done() const { return next == last && running.empty(); }
    const std::vector<int32_t>& PromptOf(size_t completion) const {
        return request.prompts[completion / group];
    }

    // The rows of the next step; begins as many completions as fit.
    Rows Plan(std::span<const Completion> all, int64_t most_rows) {
        Rows rows;
        rows.copies = std::exchange(copies, {});
        for (Running& each : running) {
            rows.chosen.emplace_back(each.completion,
                                     static_cast<int32_t>(rows.output_rows.size()));
            const int32_t token = all[each.completion].tokens.back();
            AddRows(std::span(&token, 1), each, rows);
        }
        const auto count = static_cast<int64_t>(running.size());
        for (int64_t added = count; next < last; ++added) {
            const auto& prompt = PromptOf(next);
            const auto left = most_rows - static_cast<int64_t>(rows.tokens.size());
            const bool same = added > count && next % group != 0;
            const auto wanted = static_cast<int64_t>(prompt.size());
            const bool fits = same || wanted <= left;
            const int64_t shared = same ? wanted / size.page_tokens : 0;
            if (added >= size.slots || !fits || pool.free() < MostPages(prompt) - shared) break;
            Begin(prompt, same, rows);
        }
        return rows;
    }

    // Takes the chosen tokens, and ends completions.
    void Take(const Rows& rows, std::span<const double> tokens, std::vector<Completion>& all) {
        for (const auto& [completion, row] : rows.chosen) {
            all[completion].tokens.push_back(static_cast<int32_t>(tokens[completion]) - 1);
            all[completion].ended = request.ends(all[completion].tokens.back());
        }
        std::erase_if(running, [&](const Running& each) {
            const Completion& made = all[each.completion];
            const bool ends = made.ended || std::ssize(made.tokens) >= size.most;
            for (size_t i = 0; ends && i < each.pages.size(); ++i) pool.Release(each.pages[i]);
            return ends;
        });
    }

  private:
    int64_t MostPages(std::span<const int32_t> prompt) const {
        return PagesOf(std::ssize(prompt) + size.most, size.page_tokens);
    }

    // same: the prompt began in this step, so its pages and its logits are shared.
    void Begin(const std::vector<int32_t>& prompt, bool same, Rows& rows) {
        Running made;
        made.completion = next++;
        const auto length = static_cast<int64_t>(prompt.size());
        const auto whole = static_cast<size_t>(length / size.page_tokens);
        while (std::ssize(made.pages) < MostPages(prompt)) {
            const size_t at = made.pages.size();
            if (same && at < whole) {
                made.pages.push_back(running.back().pages[at]);
                pool.Hold(made.pages.back());
                continue;
            }
            made.pages.push_back(pool.Take());
            const bool part = same && at == whole && length % size.page_tokens != 0;
            if (part) copies.push_back({running.back().pages[at], made.pages[at]});
        }
        running.push_back(std::move(made));
        if (same) {
            running.back().position = static_cast<int32_t>(length);
            rows.chosen.emplace_back(next - 1, rows.chosen.back().second);
            return;
        }
        rows.chosen.emplace_back(next - 1, static_cast<int32_t>(rows.output_rows.size()));
        AddRows(prompt, running.back(), rows);
    }

    void AddRows(std::span<const int32_t> tokens, Running& of, Rows& rows) {
        const auto begin = static_cast<int32_t>(rows.tokens.size());
        const auto count = static_cast<int32_t>(tokens.size());
        rows.sequences.push_back({begin, count, of.position, of.pages});
        for (const int32_t token : tokens) {
            rows.tokens.push_back(token);
            rows.positions.push_back(of.position++);
        }
        rows.output_rows.push_back(begin + count - 1);
    }

    const Request& request;
    const GeneratorSize size;
    const size_t group;
    size_t next, last;
    engine::PagePool pool;
    std::vector<Running> running;
    std::vector<backend::PageCopy> copies;  // before the next step
};

Result<std::vector<Completion>> Generator::Run(const Request& request) {
    const size_t count = request.prompts.size() * static_cast<size_t>(options_.group);
    std::vector<Completion> all(count);
    engine::SamplerOptions options;
    options.temperature = 1;  // (the Program divides the logits)
    options.top_k = static_cast<int>(options_.top_k);
    options.top_p = static_cast<float>(options_.top_p);
    samplers_.clear();
    for (size_t i = 0; i < count; ++i) {
        options.seed = Mix(request.seed ^ Mix(i));
        samplers_.emplace_back(options);
    }
    std::vector<Replica> replicas;
    const auto ranks = static_cast<size_t>(parts_.layout.dp);
    for (size_t r = 0; r < ranks; ++r) {
        replicas.emplace_back(request, size_, options_.group, count * r / ranks,
                              count * (r + 1) / ranks);
    }
    WEFT_TRY(GatherWeights(request));
    std::vector<double> tokens(count);
    while (!std::ranges::all_of(replicas, &Replica::done)) {
        if (parts_.stops()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
        std::ranges::fill(tokens, 0);
        std::vector<Rows> rows;
        for (Replica& each : replicas) rows.push_back(each.Plan(all, parts_.most_rows));
        const Rows& own = rows[static_cast<size_t>(parts_.layout.replica)];
        if (!own.tokens.empty()) WEFT_TRY(Step(request, own, tokens));
        WEFT_TRY(Exchange(request, tokens));
        if (std::ranges::min(tokens) < 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "step {}: the logits of a completion are not finite: training has "
                             "diverged. Use a lower --lr",
                             request.step);
        }
        for (size_t r = 0; r < ranks; ++r) replicas[r].Take(rows[r], tokens, all);
    }
    return all;
}

// Gathers the weights that are shares (ZeRO 3). The ops read no row of the step.
Status Generator::GatherWeights(const Request& request) {
    constexpr int32_t kZero = 0;
    const backend::StepSequence sequence{0, 1, 0, {&kZero, 1}};
    backend::Step step;
    step.number = request.step;
    step.tokens = step.positions = step.output_rows = {&kZero, 1};
    step.sequences = {&sequence, 1};
    for (const program::ModelChunk& chunk : parts_.chunks) {
        const program::OpRange gathers = chunk.backward();
        if (gathers.begin == gathers.end) continue;
        WEFT_TRY(parts_.executable.Run(gathers, step, parts_.groups.ForSteps()));
    }
    return {};
}

// Runs the rows of this replica, and chooses their tokens.
Status Generator::Step(const Request& request, const Rows& rows, std::span<double> tokens) {
    backend::Step step;
    step.number = request.step;
    step.tokens = rows.tokens;
    step.positions = rows.positions;
    step.sequences = rows.sequences;
    step.output_rows = rows.output_rows;
    step.copies = rows.copies;
    const backend::Communicators groups = parts_.groups.ForSteps();
    for (size_t i = 0; i < parts_.chunks.size(); ++i) {
        if (parts_.groups.stages != nullptr) parts_.groups.stages->SetChunk(static_cast<int>(i));
        step.again = false;
        WEFT_TRY(parts_.executable.Run(parts_.chunks[i].forward(), step, groups));
        step.again = true;
        step.copies = {};  // (Each Run makes them, for the caches of all chunks.)
        WEFT_TRY(parts_.executable.Run(parts_.chunks[i].predict(), step, groups));
    }
    const TrainLayout& layout = parts_.layout;
    if (layout.tensor_rank != 0 || layout.stage + 1 != layout.pp()) return {};
    return Choose(request, rows, tokens);
}

Status Generator::Choose(const Request& request, const Rows& rows, std::span<double> tokens) {
    const auto width = static_cast<size_t>(parts_.width);
    const size_t count = rows.output_rows.size() * width;
    const program::ValueId predicted = parts_.chunks.back().loss.predicted;
    std::span<const float> logits =
        parts_.executable.HostFloats(predicted, 0, static_cast<int64_t>(count));
    if (logits.empty()) {
        logits_.resize(count);
        WEFT_TRY(parts_.executable.ReadFloats(predicted, 0, logits_));
        logits = logits_;
    }
    backend::ThreadTeam& team = parts_.device.host_team();
    const auto threads = static_cast<size_t>(team.size());
    while (workers_.size() < threads) workers_.emplace_back(engine::SamplerOptions());
    team.Run([&](int part) {
        engine::Sampler& worker = workers_[static_cast<size_t>(part)];
        for (size_t i = static_cast<size_t>(part); i < rows.chosen.size(); i += threads) {
            const auto& [completion, row] = rows.chosen[i];
            const auto own = logits.subspan(static_cast<size_t>(row) * width,
                                            static_cast<size_t>(request.vocab));
            worker.Become(samplers_[completion]);
            const auto token = worker.Sample(own, {});
            samplers_[completion].Become(worker);
            tokens[completion] = token.ok() ? *token + 1 : kNoToken;
        }
    });
    return {};
}

Status Generator::Exchange(const Request& request, std::span<double> tokens) const {
    if (parts_.groups.world == nullptr) return {};
    net::OpTag tag;
    tag.op = "token";
    tag.step = request.step;
    return parts_.groups.world->AllReduce(tokens, tag);
}

}  // namespace weft::train
