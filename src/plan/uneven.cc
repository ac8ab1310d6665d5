#include "plan/uneven.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace weft::plan {
namespace {

using Shares = std::vector<int>;

// In whole parts, one at the least, `total` in all: the largest remainders get what is left.
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
    while (left < 0) {  // what the least parts took beyond their weights
        --*std::ranges::max_element(parts);
        ++left;
    }
    return parts;
}

std::vector<double> AsShares(const Shares& parts) {
    return {parts.begin(), parts.end()};
}

class ShareSearch {
  public:
    ShareSearch(LayoutPredictor& predictor, const model::Layout& layout)
        : predictor_(predictor), layout_(layout) {}

    Result<Prediction> Run() {
        Result<Prediction> even = predictor_.Predict(layout_);
        for (const Shares& tensor : TensorShares()) {
            Shares stages;
            if (layout_.pp > 1) stages = InParts(StageSpeeds(tensor), Layers());
            Try(tensor, stages);
        }
        if (!best_) return even;
        for (int step = std::max(kShareUnits, Layers()) / 4; step > 0; step /= 2) {
            while (Improve(step)) {
            }
        }
        if (even.ok() && !IsBetter(*best_, *even)) return even;
        return std::move(*best_);
    }

  private:
    int Layers() const { return static_cast<int>(predictor_.walk().hyper().layers); }
    double Speed(int stage, int tensor_rank) const {
        const int rank = stage * layout_.tp + tensor_rank;
        return predictor_.cluster().machine_of(rank).sustained_bytes_per_s();
    }

    // Even ones, each stage's own, and by the sum over stages.
    std::set<Shares> TensorShares() const {
        std::set<Shares> all;
        if (layout_.tp == 1) return {Shares()};
        const auto tp = static_cast<size_t>(layout_.tp);
        std::vector<double> sums(tp, 0);
        for (int stage = 0; stage < layout_.pp; ++stage) {
            std::vector<double> speeds;
            for (int t = 0; t < layout_.tp; ++t) speeds.push_back(Speed(stage, t));
            for (size_t t = 0; t < tp; ++t) sums[t] += speeds[t];
            all.insert(InParts(speeds, kShareUnits));
        }
        all.insert(InParts(sums, kShareUnits));
        all.insert(InParts(std::vector<double>(tp, 1), kShareUnits));
        return all;
    }

    // Layers a second, but for a factor: a stage is as slow as its slowest tensor rank.
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

    // What ranks need beyond what their memories have.
    static double Lack(const Prediction& p) {
        double lack = 0;
        for (const MemoryUse& use : p.memory) lack += std::max(0.0, use.needed - use.room);
        return lack;
    }
    static bool IsBetter(const Prediction& a, const Prediction& b) {
        if (a.fits() != b.fits()) return a.fits();
        if (!a.fits() && Lack(a) != Lack(b)) return Lack(a) < Lack(b);
        return a.tok_s > b.tok_s * (1 + 1e-9);
    }

    bool Try(const Shares& tensor, const Shares& stages) {
        if (++tries_ > kMostTries || !tried_.emplace(tensor, stages).second) return false;
        model::Layout layout = layout_;
        layout.tp_shares = AsShares(tensor);
        layout.pp_shares = AsShares(stages);
        Result<Prediction> prediction = predictor_.Predict(layout);
        if (!prediction.ok()) return false;  // too little for a rank
        if (best_ && !IsBetter(*prediction, *best_)) return false;
        best_ = std::move(*prediction);
        tensor_ = tensor;
        stages_ = stages;
        return true;
    }

    // Moves so many parts from one to another, of tensor ranks or of stages: the best such move.
    bool Improve(int step) {
        bool better = false;
        for (const bool of_stages : {true, false}) {
            const Shares from = of_stages ? stages_ : tensor_;
            for (size_t giver = 0; giver < from.size(); ++giver) {
                for (size_t taker = 0; taker < from.size(); ++taker) {
                    Shares moved = of_stages ? stages_ : tensor_;
                    if (giver == taker || moved[giver] <= step) continue;
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
    std::optional<Prediction> best_;
    Shares tensor_, stages_;  // of the best
    std::set<std::pair<Shares, Shares>> tried_;
    int tries_ = 0;
};

}  // namespace

Result<Prediction> PredictUneven(LayoutPredictor& predictor, const model::Layout& layout) {
    if (layout.size() == 1) return predictor.Predict(layout);
    return ShareSearch(predictor, layout).Run();
}

}  // namespace weft::plan
