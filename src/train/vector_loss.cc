#include "train/vector_loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <variant>

#include "base/check.h"
#include "base/on_threads.h"
#include "train/logistic.h"

namespace weft::train {
namespace {

using model_files::Pooling;

// Adds a pair; sets the derivatives of its loss by both scores.
void AddPair(const VectorOptions& options, const Sequence& record, std::span<const float> scores,
             double share, std::span<float> slopes, VectorSums& sums) {
    const double chosen = double{scores[0]}, rejected = double{scores[1]};
    const double margin = chosen - rejected - record.label, sum = chosen + rejected;
    const double slope = -Logistic(-margin), center = 2 * options.center_rewards * sum;
    slopes[0] = static_cast<float>((slope + center) * share);
    slopes[1] = static_cast<float>((-slope + center) * share);
    sums[VectorSums::kLoss] += (-LogLogistic(margin) + options.center_rewards * sum * sum) * share;
    sums[VectorSums::kAccuracy] += chosen > rejected ? 1 : 0;
    sums[VectorSums::kMargin] += chosen - rejected;
    sums[VectorSums::kReward] += sum / 2;
}

// The logarithm of the sum of exponentials.
template <typename T>
double LogSumExp(std::span<const T> logits) {
    const double most = static_cast<double>(*std::ranges::max_element(logits));
    double sum = 0;
    for (const T logit : logits) sum += std::exp(static_cast<double>(logit) - most);
    return most + std::log(sum);
}

void AddLabel(const Sequence& record, std::span<const float> scores, double share,
              std::span<float> slopes, VectorSums& sums) {
    const auto label = static_cast<size_t>(record.label);
    WEFT_CHECK(label < scores.size());
    const double all = LogSumExp(scores);
    for (size_t i = 0; i < scores.size(); ++i) {
        const double slope = std::exp(double{scores[i]} - all) - (i == label ? 1 : 0);
        slopes[i] = static_cast<float>(slope * share);
    }
    sums[VectorSums::kLoss] += (all - double{scores[label]}) * share;
    const auto best = static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
    sums[VectorSums::kAccuracy] += best == label ? 1 : 0;
}

// Eight partial sums, which compilers compute together.
double Dot(std::span<const float> a, std::span<const float> b) {
    constexpr size_t kLanes = 8;
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= a.size(); i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
    }
    double sum = 0;
    for (const float each : sums) sum += double{each};
    for (; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
    return sum;
}

void AddScaled(double factor, std::span<const float> x, std::span<float> to) {
    const auto f = static_cast<float>(factor);
    for (size_t i = 0; i < x.size(); ++i) to[i] += f * x[i];
}

// The loss over the candidates (all records' texts but the anchors) of each anchor.
class Joiner {
  public:
    Joiner(const VectorOptions& options, const JoinedBatch& batch, size_t threads)
        : scale_(options.scale), batch_(batch), threads_(std::max<size_t>(threads, 1)) {}

    VectorSums Run(std::span<float> slopes) {
        MakeUnits();
        MakeErrors();
        Spread(slopes);
        return sums_;
    }

  private:
    std::span<const float> Unit(size_t record, size_t text) const {
        return std::span(units_).subspan((record * batch_.texts + text) * batch_.columns,
                                         batch_.columns);
    }
    size_t candidates() const { return batch_.records * (batch_.texts - 1); }
    // Positives of all records, then their first negatives, and so on.
    std::span<const float> Candidate(size_t i) const {
        return Unit(i % batch_.records, 1 + i / batch_.records);
    }
    std::span<float> Errors(size_t anchor) {
        return std::span(errors_).subspan(anchor * candidates(), candidates());
    }

    void Each(size_t count, const std::function<void(size_t)>& work) const {
        WEFT_CHECK(OnThreads(threads_, count, [&](size_t i) {
                       work(i);
                       return Status();
                   }).ok());
    }

    // torch.nn.functional.normalize.
    void MakeUnits() {
        const size_t texts = batch_.records * batch_.texts;
        units_.resize(texts * batch_.columns);
        lengths_.resize(texts);
        Each(texts, [&](size_t i) {
            const auto x = batch_.vectors.subspan(i * batch_.columns, batch_.columns);
            double squares = 0;
            for (const float each : x) squares += double{each} * double{each};
            lengths_[i] = std::max(std::sqrt(squares), 1e-12);
            for (size_t c = 0; c < x.size(); ++c) {
                units_[i * x.size() + c] = static_cast<float>(double{x[c]} / lengths_[i]);
            }
        });
    }

    // The derivatives of the loss by the cosines.
    void MakeErrors() {
        errors_.resize(batch_.records * candidates());
        std::vector<double> losses(batch_.records);
        std::vector<uint8_t> right(batch_.records);
        Each(batch_.records, [&](size_t i) {
            const std::span<float> errors = Errors(i);
            std::vector<double> logits(errors.size());
            for (size_t j = 0; j < errors.size(); ++j) {
                logits[j] = scale_ * Dot(Unit(i, 0), Candidate(j));
            }
            const double all = LogSumExp(std::span<const double>(logits));
            losses[i] = all - logits[i];
            right[i] = *std::ranges::max_element(logits) == logits[i] ? 1 : 0;
            const double share = scale_ / static_cast<double>(batch_.records);
            for (size_t j = 0; j < errors.size(); ++j) {
                errors[j] =
                    static_cast<float>((std::exp(logits[j] - all) - (i == j ? 1 : 0)) * share);
            }
        });
        for (size_t i = 0; i < batch_.records; ++i) {
            sums_[VectorSums::kLoss] += losses[i] / static_cast<double>(batch_.records);
            sums_[VectorSums::kAccuracy] += right[i];
        }
    }

    // The derivatives by the rank's own vectors.
    void Spread(std::span<float> slopes) {
        std::ranges::fill(slopes, 0.0f);
        const size_t end = std::min(batch_.first + batch_.count, batch_.records);
        const size_t own = end - std::min(batch_.first, end);
        Each(own * batch_.texts, [&](size_t i) {
            const size_t record = batch_.first + i / batch_.texts, text = i % batch_.texts;
            const auto slope = slopes.subspan(i * batch_.columns, batch_.columns);
            if (text == 0) {
                const auto errors = Errors(record);
                for (size_t j = 0; j < errors.size(); ++j) {
                    AddScaled(double{errors[j]}, Candidate(j), slope);
                }
            } else {
                const size_t candidate = (text - 1) * batch_.records + record;
                for (size_t a = 0; a < batch_.records; ++a) {
                    AddScaled(double{Errors(a)[candidate]}, Unit(a, 0), slope);
                }
            }
            const auto unit = Unit(record, text);
            const double along = Dot(slope, unit);
            const double length = lengths_[record * batch_.texts + text];
            for (size_t c = 0; c < slope.size(); ++c) {
                slope[c] =
                    static_cast<float>((double{slope[c]} - along * double{unit[c]}) / length);
            }
        });
    }

    const double scale_;
    const JoinedBatch& batch_;
    const size_t threads_;
    std::vector<float> units_, errors_;  // errors_: [anchors, candidates]
    std::vector<double> lengths_;
    VectorSums sums_;
};

}  // namespace

Status CheckVectors(const VectorOptions& o) {
    if (!o.on()) return {};
    if (!(o.center_rewards >= 0) || !std::isfinite(o.center_rewards)) {
        return MakeError(ErrorCode::kUsage,
                         "--center-rewards-coefficient {}: expected 0 (none) or more",
                         o.center_rewards);
    }
    if (!(o.scale > 0) || !std::isfinite(o.scale)) {
        return MakeError(ErrorCode::kUsage, "--contrastive-scale {}: expected a number above 0",
                         o.scale);
    }
    constexpr int64_t kMostLabels = 1 << 16;
    const bool classes = o.loss == LossKind::kClassification;
    if (classes && (o.labels < 0 || o.labels == 1 || o.labels > kMostLabels)) {
        return MakeError(ErrorCode::kUsage, "--num-labels {}: expected 2 to {} classes", o.labels,
                         kMostLabels);
    }
    return {};
}

Result<Pooling> PoolingOf(const VectorOptions& options, const model_files::EmbeddingHead& head) {
    if (HasHead(options.loss)) return Pooling::kLast;
    constexpr Pooling kKnown[] = {Pooling::kLast, Pooling::kMean, Pooling::kCls};
    if (!options.pooling.empty()) {
        const auto named = model_files::PoolingOfName(options.pooling);
        if (named && std::ranges::count(kKnown, *named) > 0) return *named;
        return MakeError(ErrorCode::kUsage, "--pooling {}: expected last, mean or cls",
                         options.pooling);
    }
    for (const model_files::HeadStep& step : head.steps) {
        if (std::holds_alternative<model_files::UnitStep>(step)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "--loss contrastive: modules.json has a Dense or LayerNorm after the "
                         "pooling, which Weft does not train");
    }
    const bool known =
        head.poolings.size() == 1 && std::ranges::count(kKnown, head.poolings[0]) > 0;
    if (known && head.pools_prompt) return head.poolings[0];
    return MakeError(ErrorCode::kUnsupported,
                     "--loss contrastive: modules.json has a pooling that Weft does not train; "
                     "expected last, mean or cls over all tokens");
}

Status CheckVectorBatch(const VectorOptions& options, uint64_t records) {
    if (!options.joins() || records == 0) return {};
    // They grow with the square of the batch.
    constexpr uint64_t kMostCosines = uint64_t{1} << 28;
    const auto candidates = static_cast<uint64_t>(options.texts - 1);
    if (records * candidates <= kMostCosines / records) return {};
    return MakeError(ErrorCode::kUsage,
                     "--loss contrastive: {} records an update with {} texts each have {} "
                     "pairs of an anchor and a candidate; expected at most {}. Use a smaller "
                     "--micro-batch or --grad-accum",
                     records, options.texts, records * records * candidates, kMostCosines);
}

uint64_t VectorLossBytes(const VectorOptions& options, uint64_t rows, uint64_t columns,
                         uint64_t records, uint64_t own) {
    uint64_t floats = 2 * rows * columns;
    if (options.joins()) {
        const auto texts = static_cast<uint64_t>(options.texts);
        floats += (2 * records + own) * texts * columns + records * records * (texts - 1);
    }
    return floats * sizeof(float);
}

std::vector<std::string> VectorNames(const VectorOptions& options) {
    if (options.loss == LossKind::kReward) return {"accuracy", "margin", "mean_reward"};
    return {"accuracy"};
}

std::vector<double> VectorMeans(const VectorOptions& options, const VectorSums& sums,
                                uint64_t records) {
    std::vector<double> means;
    const size_t names = VectorNames(options).size();
    for (size_t i = 0; i < names; ++i) {
        means.push_back(sums.sums[VectorSums::kAccuracy + i] /
                        static_cast<double>(std::max<uint64_t>(records, 1)));
    }
    return means;
}

void AddScores(const VectorOptions& options, std::span<const Sequence* const> records, uint64_t all,
               std::span<const float> scores, std::span<float> slopes, VectorSums& sums) {
    const double share = 1 / static_cast<double>(std::max<uint64_t>(all, 1));
    const size_t each = scores.size() / std::max<size_t>(records.size(), 1);
    for (size_t i = 0; i < records.size(); ++i) {
        const auto own = scores.subspan(i * each, each);
        const auto out = slopes.subspan(i * each, each);
        if (options.loss == LossKind::kReward) {
            AddPair(options, *records[i], own, share, out, sums);
        } else {
            AddLabel(*records[i], own, share, out, sums);
        }
    }
}

void Pool(std::span<const float> rows, size_t columns, std::span<float> vector) {
    const size_t count = rows.size() / columns;
    for (size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (size_t row = 0; row < count; ++row) sum += double{rows[row * columns + c]};
        vector[c] = static_cast<float>(sum / static_cast<double>(count));
    }
}

void Unpool(std::span<const float> slope, std::span<float> rows) {
    const size_t columns = slope.size(), count = rows.size() / columns;
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<float>(double{slope[i % columns]} / static_cast<double>(count));
    }
}

VectorSums JoinVectors(const VectorOptions& options, const JoinedBatch& batch, size_t threads,
                       std::span<float> slopes) {
    return Joiner(options, batch, threads).Run(slopes);
}

}  // namespace weft::train
