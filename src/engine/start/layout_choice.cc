#include "engine/start/layout_choice.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "cluster/worker/link_windows.h"
#include "engine/rank/runner.h"
#include "model/shard.h"

namespace weft::engine {
namespace {

constexpr int64_t kUsualAnswer = 512;
constexpr int64_t kSumsOfALayer = 2;

// A token reads all weights except the rows of the embedding table (unless it is also the output
// matrix), and of the experts only the experts of its route.
double TokenBytes(const model_files::ModelSource& source, const model::Hyper& hyper) {
    const bool own_output = source.FindTensor("output.weight") != nullptr;
    const double used = hyper.moe.experts > 0 ? static_cast<double>(hyper.moe.used) /
                                                    static_cast<double>(hyper.moe.experts)
                                              : 1;
    double bytes = 0;
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        if (own_output && tensor.name == "token_embd.weight") continue;
        const auto all = static_cast<double>(RowBytes(tensor.dtype, tensor.cols)) *
                         static_cast<double>(tensor.rows);
        bytes += tensor.name.find("_exps.") == tensor.name.npos ? all : all * used;
    }
    return bytes;
}

}  // namespace

bool AreAlike(std::vector<std::string> identities) {
    std::erase(identities, "");
    return std::ranges::adjacent_find(identities, std::not_equal_to<>()) == identities.end();
}

bool LeavesLayoutOpen(const Job& job) {
    return job.tp == 0 && job.pp == 0 && job.ep == 0;
}

namespace {

// Distinct values of a member of the ranks' hosts.
template <typename Host>
size_t CountOf(cluster::Cluster& cluster, std::string Host::*member) {
    std::set<std::string> values;
    for (int rank = 0; rank < cluster.size(); ++rank) values.insert(cluster.host(rank).*member);
    return values.size();
}

}  // namespace

bool ChoosesLayout(const Job& job, cluster::Cluster& cluster) {
    return LeavesLayoutOpen(job) && cluster.size() > 1 && !cluster.fabric().links.empty();
}

bool MeasuresLayouts(const Job& job, cluster::Cluster& cluster) {
    if (job.draft_head || !job.split.empty()) return false;
    return std::cmp_equal(CountOf(cluster, &cluster::HostInfo::boot_id), cluster.size());
}

bool MayLackLinks(const Job& job, cluster::Cluster& cluster) {
    // Counts hosts by name: network namespaces of one machine may lack links, too.
    return LeavesLayoutOpen(job) && CountOf(cluster, &cluster::HostInfo::name) > 2;
}

cluster::LinkNeeds LinksOf(const std::string& text, int ranks) {
    const auto job = JobFromJson(text);
    if (!job.ok()) return {};
    const bool open = LeavesLayoutOpen(*job);
    const auto layout =
        model::MakeLayout(ranks, job->tp, open ? ranks : job->pp, job->split, job->ep);
    if (!layout.ok() || layout->pp == 1 || ranks == 2) return {};
    const int tp = layout->tp;
    cluster::LinkNeeds links{.spare = open};
    // (Each pair once: a search among the pairs would take minutes for thousands of ranks.)
    for (int rank = 0; rank < ranks; ++rank) {
        for (int peer = rank + 1; peer < (rank / tp + 1) * tp; ++peer) {
            links.pairs.push_back({rank, peer});
        }
        if (rank + tp < ranks) links.pairs.push_back({rank, rank + tp});
        if (job->feed && rank > tp) links.pairs.push_back({0, rank});
    }
    // Logits or sampled tokens.
    if (!job->feed && layout->pp > 2) links.pairs.push_back({0, ranks - tp, true});
    return links;
}

uint64_t WindowsBytes(const model::Layout& layout, int rank, bool local) {
    const int ranks = layout.size(), tp = layout.tp, pp = layout.pp;
    const int beside = local ? ranks : 1;
    if (ranks == 1) return 0;
    if (pp == 1 || ranks == 2) return cluster::WindowsBytes(ranks - 1, ranks - 1, beside);
    // As in LinksOf: tensor ranks, the neighbors in other stages, and the answers' route to rank 0.
    const bool answers = pp > 2 && (rank == 0 || rank == ranks - tp);
    const int links = tp - 1 + (rank >= tp) + (rank + tp < ranks) + answers;
    return cluster::WindowsBytes(links, tp - 1 + (pp > 2 ? 2 : 1), beside);
}

LayoutCosts CostsOf(const Job& job, const model::Hyper& hyper,
                    const model_files::ModelSource& source) {
    LayoutCosts costs;
    costs.layers = hyper.layers;
    // A context that is large only because the memory allows it does not make prompts long.
    costs.prompt = std::max<int64_t>(std::min(job.ctx, kDefaultContext) / 2, 1);
    const bool answers = job.outputs != model::Outputs::kHidden;
    costs.answer = answers ? std::min(kUsualAnswer, costs.prompt) : 0;
    costs.chunk = std::max<int64_t>(job.step_rows(), 1);
    costs.token_bytes = TokenBytes(source, hyper);
    costs.logits_bytes = answers ? hyper.vocab * static_cast<int64_t>(sizeof(float)) : 0;
    return costs;
}

double LayoutCosts::piece_bytes() const {
    return token_bytes / static_cast<double>(ranks * kSumsOfALayer * std::max<int64_t>(1, layers));
}

void LayoutCosts::SetTail(const coll::SeriesUs& series, const coll::Tuning& tuning) {
    const double typical_us = coll::PredictedUs(tuning, static_cast<size_t>(sum_bytes));
    tail_s = std::max(0.0, series.mean_us + 2 * series.error_us - typical_us) * 1e-6;
}

LayoutSeconds EstimateLayouts(const LayoutCosts& c, const coll::Tuning& tuning) {
    const auto sum_s = [&](int64_t bytes) {
        return coll::PredictedUs(tuning, static_cast<size_t>(bytes)) * 1e-6;
    };
    const double row_s = sum_s(c.sum_bytes);
    if (!(row_s > 0) || !(c.bytes_per_s > 0)) return {};
    const auto answer = static_cast<double>(c.answer);
    const int64_t rows = std::min(c.chunk, c.prompt);
    const double chunks = static_cast<double>(c.prompt) / static_cast<double>(rows);
    const auto sums = static_cast<double>(kSumsOfALayer * c.layers);
    const double token_s = c.token_bytes / c.bytes_per_s;
    const double logits_s = c.logits_bytes > 0 ? sum_s(c.logits_bytes / c.ranks) + c.tail_s : 0;
    // A message takes about half of an all-reduce, which is a round trip.
    const double hops = static_cast<double>(c.ranks - 1) / 2;
    // The tail is added to each sum; with stages, to each of a token's messages, of which the last
    // one returns the token to rank 0.
    const double ring_tail_s = c.ranks * c.tail_s;
    LayoutSeconds seconds;
    seconds.tensor = chunks * sums * (sum_s(rows * c.prompt_sum_bytes) + c.tail_s) +
                     answer * (token_s / c.ranks + sums * (row_s + c.tail_s) + logits_s);
    seconds.stages = (chunks + hops) * sum_s(rows * c.sum_bytes) / 2 + chunks * ring_tail_s +
                     answer * (token_s + hops * row_s + ring_tail_s);
    return seconds;
}

}  // namespace weft::engine
