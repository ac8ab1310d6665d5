#include "plan/uneven.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>

namespace weft::plan {
namespace {

using Shares = std::vector<int>;

// Rounds to whole parts of at least one, `total` in all; the largest remainders get the rest.
Shares InParts(const std::vector<double>& weights, int total) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Shares parts;
    std::vector<std::pair<double, size_t>> rest;
    for (size_t i = 0; i < weights.size(); ++i) {
        const double exact = weights[i] / sum * total;
        parts.push_back(std::max(1, static_cast<int>(exact)));
        rest.emplace_back(exact - parts.back(), i);
    }
    std::ranges::sort(rest, std::greater<>());
    int left = total - std::accumulate(parts.begin(), parts.end(), 0);
    for (size_t i = 0; left > 0; ++i, --left) ++parts[rest[i % rest.size()].second];
    while (left < 0) {  // the smallest parts were rounded up to one
        --*std::ranges::max_element(parts);
        ++left;
    }
    return parts;
}

std::vector<double> AsShares(const Shares& parts) {
    return {parts.begin(), parts.end()};
}

// Two tensor ranks or stages with equal machines, share and ends of the pipeline are of one kind.
using Kind = std::tuple<std::vector<std::string>, int, int>;

// `a` fits and `b` does not, lacks less memory, or answers sooner.
bool IsBetter(const Prediction& a, const Prediction& b) {
    const auto lack = [](const Prediction& p) {
        double all = 0;
        for (const MemoryUse& use : p.memory) all += std::max(0.0, use.needed - use.room);
        return all;
    };
    if (a.fits() != b.fits()) return a.fits();
    if (!a.fits() && lack(a) != lack(b)) return lack(a) < lack(b);
    return a.answer_s * (1 + 1e-9) < b.answer_s;
}

}  // namespace

class UnevenLayout::Search {
  public:
    Search(LayoutPredictor& predictor, const model::Layout& layout)
        : predictor_(predictor), layout_(layout) {}

    Status Begin() {
        Result<Prediction> even = predictor_.Predict(layout_);
        for (const Shares& tensor : TensorShares()) {
            if (layout_.pp == 1) {
                Try(tensor, {});
                continue;
            }
            Try(tensor, InParts(StageSpeeds(tensor), Layers()));
            Try(tensor, InParts(StageRooms(), Layers()));
        }
        if (!best_) {
            if (!even.ok()) return even.error();
            best_ = std::move(*even);
        } else if (even.ok() && !IsBetter(*best_, *even)) {
            even_ = std::move(*even);
        }
        return {};
    }

    void Refine(size_t most_kinds) {
        most_kinds_ = predictor_.known_kinds() + most_kinds;
        for (int step = std::max(kShareUnits, Layers()) / 4; step > 0; step /= 2) {
            while (Improve(step)) {
            }
        }
    }

    const Prediction& best() const { return even_ && !IsBetter(*best_, *even_) ? *even_ : *best_; }

  private:
    int Layers() const { return static_cast<int>(predictor_.walk().hyper().layers); }
    const Machine& MachineOf(int stage, int tensor_rank) const {
        return predictor_.machine_of(stage * layout_.tp + tensor_rank);
    }
    double Speed(int stage, int tensor_rank) const {
        return MachineOf(stage, tensor_rank).sustained_bytes_per_s();
    }

    // Even shares, each stage's own, by the sum over stages, and by memory.
    std::set<Shares> TensorShares() const {
        std::set<Shares> all;
        if (layout_.tp == 1) return {Shares()};
        const auto tp = static_cast<size_t>(layout_.tp);
        std::vector<double> sums(tp, 0), rooms(tp, 0);
        for (int stage = 0; stage < layout_.pp; ++stage) {
            std::vector<double> speeds;
            for (int t = 0; t < layout_.tp; ++t) {
                speeds.push_back(Speed(stage, t));
                rooms[static_cast<size_t>(t)] += MachineOf(stage, t).memory.value;
            }
            for (size_t t = 0; t < tp; ++t) sums[t] += speeds[t];
            all.insert(InParts(speeds, kShareUnits));
        }
        all.insert(InParts(sums, kShareUnits));
        all.insert(InParts(rooms, kShareUnits));
        all.insert(InParts(std::vector<double>(tp, 1), kShareUnits));
        return all;
    }

    // Relative layers per second; a stage is as slow as its slowest tensor rank.
    std::vector<double> StageSpeeds(const Shares& tensor) const {
        std::vector<double> speeds;
        for (int stage = 0; stage < layout_.pp; ++stage) {
            double slowest = 0;
            for (int t = 0; t < layout_.tp; ++t) {
                const double share = tensor.empty() ? 1 : tensor[static_cast<size_t>(t)];
                slowest = std::max(slowest, share / Speed(stage, t));
            }
            speeds.push_back(1 / slowest);
        }
        return speeds;
    }

    std::vector<double> StageRooms() const {
        std::vector<double> rooms;
        for (int stage = 0; stage < layout_.pp; ++stage) {
            double room = 0;
            for (int t = 0; t < layout_.tp; ++t) room += MachineOf(stage, t).memory.value;
            rooms.push_back(room);
        }
        return rooms;
    }

    bool Try(const Shares& tensor, const Shares& stages) {
        if (predictor_.known_kinds() > most_kinds_) return false;
        if (++tries_ > kMostTries || !tried_.emplace(tensor, stages).second) return false;
        model::Layout layout = layout_;
        layout.tp_shares = AsShares(tensor);
        layout.pp_shares = AsShares(stages);
        Result<Prediction> prediction = predictor_.Predict(layout);
        if (!prediction.ok()) return false;  // a rank's share is too small
        if (best_ && !IsBetter(*prediction, *best_)) return false;
        best_ = std::move(*prediction);
        tensor_ = tensor;
        stages_ = stages;
        return true;
    }

    // Kinds by stage, or by tensor rank.
    std::vector<Kind> Kinds(bool of_stages) const {
        std::vector<Kind> kinds;
        const Shares& shares = of_stages ? stages_ : tensor_;
        const int others = of_stages ? layout_.tp : layout_.pp;
        for (int i = 0; i < static_cast<int>(shares.size()); ++i) {
            std::vector<std::string> words;
            for (int other = 0; other < others; ++other) {
                words.push_back(of_stages ? MachineOf(i, other).word : MachineOf(other, i).word);
            }
            const int end = !of_stages ? 0 : i == 0 ? 1 : i == layout_.pp - 1 ? 2 : 0;
            kinds.emplace_back(std::move(words), shares[static_cast<size_t>(i)], end);
        }
        return kinds;
    }

    // Moves `step` parts between tensor ranks or stages, one pair of each kind.
    bool Improve(int step) {
        bool better = false;
        for (const bool of_stages : {true, false}) {
            const size_t count = (of_stages ? stages_ : tensor_).size();
            std::set<std::pair<Kind, Kind>> moves;
            for (size_t giver = 0; giver < count; ++giver) {
                for (size_t taker = 0; taker < count; ++taker) {
                    Shares moved = of_stages ? stages_ : tensor_;
                    if (giver == taker || moved[giver] <= step) continue;
                    const std::vector<Kind> kinds = Kinds(of_stages);
                    if (!moves.emplace(kinds[giver], kinds[taker]).second) continue;
                    moved[giver] -= step;
                    moved[taker] += step;
                    better |= of_stages ? Try(tensor_, moved) : Try(moved, stages_);
                }
            }
        }
        return better;
    }

    LayoutPredictor& predictor_;
    model::Layout layout_;
    std::optional<Prediction> best_, even_;  // even_: set while it is better than all shares tried
    Shares tensor_, stages_;                 // of the best
    size_t most_kinds_ = SIZE_MAX;
    std::set<std::pair<Shares, Shares>> tried_;
    int tries_ = 0;
};

UnevenLayout::UnevenLayout(LayoutPredictor& predictor, const model::Layout& layout)
    : search_(std::make_unique<Search>(predictor, layout)) {}
UnevenLayout::~UnevenLayout() = default;
UnevenLayout::UnevenLayout(UnevenLayout&&) noexcept = default;
UnevenLayout& UnevenLayout::operator=(UnevenLayout&&) noexcept = default;

Status UnevenLayout::Begin() {
    return search_->Begin();
}
void UnevenLayout::Refine(size_t most_kinds) {
    search_->Refine(most_kinds);
}
const Prediction& UnevenLayout::best() const {
    return search_->best();
}

}  // namespace weft::plan
