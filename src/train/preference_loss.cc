#include "train/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "train/logistic.h"

namespace weft::train {
namespace {

// The mean log-probability of an answer, for ORPO: the losses of rows are float32, which rounds a
// probability near 1 to 1, but its odds are finite.
double BelowZero(double mean) {
    constexpr double kLargest = -0x1p-24;
    return std::min(mean, kLargest);
}

// The logarithm of 1 - exp(x), for x < 0 (Maechler 2012).
double LogOneMinusExp(double x) {
    return x > -std::log(2.0) ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

}  // namespace

Status CheckPreference(const PreferenceOptions& o) {
    if (!o.on()) return {};
    if (!(o.beta > 0) || !std::isfinite(o.beta)) {
        return MakeError(ErrorCode::kUsage, "--beta {}: expected a number above 0", o.beta);
    }
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 0.5)) {
        return MakeError(ErrorCode::kUsage, "--label-smoothing {}: expected 0 to below 0.5",
                         o.label_smoothing);
    }
    if (!(o.simpo_gamma >= 0) || !std::isfinite(o.simpo_gamma)) {
        return MakeError(ErrorCode::kUsage, "--simpo-gamma {}: expected 0 or more", o.simpo_gamma);
    }
    const bool weights = o.desirable_weight >= 0 && o.undesirable_weight >= 0 &&
                         std::isfinite(o.desirable_weight + o.undesirable_weight);
    if (weights && o.desirable_weight + o.undesirable_weight > 0) return {};
    return MakeError(ErrorCode::kUsage,
                     "--desirable-weight {} and --undesirable-weight {}: expected 0 or more, and "
                     "one of them above 0",
                     o.desirable_weight, o.undesirable_weight);
}

std::vector<PreferenceReport::Name> PreferenceReport::NamesOf(LossKind loss) {
    std::vector<Name> names;
    for (int i = 0; i < kNames && IsPreference(loss); ++i) {
        const Name name = static_cast<Name>(i);
        const bool other = TakesPairs(loss) ? name == kKl : name == kAccuracies;
        if (!other) names.push_back(name);
    }
    return names;
}

double LogProbability(const AnswerRows& answer, std::span<const float> losses,
                      std::span<const uint8_t> in_answer) {
    double sum = 0;
    for (size_t i = answer.begin; i < answer.end; ++i) {
        if (in_answer[i] != 0) sum -= losses[i];
    }
    return sum;
}

PreferenceLoss::PreferenceLoss(const PreferenceOptions& options, const Batch& batch, double kl)
    : options_(options), kl_(kl) {
    const auto count = [&](SampleRole role) {
        return static_cast<double>(batch.samples_of[static_cast<size_t>(role)]);
    };
    chosen_ = count(SampleRole::kChosen);
    rejected_ = count(SampleRole::kRejected);
    examples_ = std::max(1.0, TakesPairs(options.loss) ? chosen_ : chosen_ + rejected_);
    if (options.loss == LossKind::kOrpo && batch.chosen_targets > 0) {
        nll_scale_ = 1 / static_cast<double>(batch.chosen_targets);
    }
}

void PreferenceLoss::Add(std::span<const AnswerRows> answers, std::span<const float> losses,
                         std::span<const uint8_t> in_answer, std::span<float> weights,
                         PreferenceSums& sums) const {
    const auto answer_of = [&](const AnswerRows& rows) {
        const auto begin = in_answer.begin() + static_cast<ptrdiff_t>(rows.begin);
        const auto end = in_answer.begin() + static_cast<ptrdiff_t>(rows.end);
        return Answer{LogProbability(rows, losses, in_answer), rows.reference,
                      static_cast<double>(std::count(begin, end, 1))};
    };
    const auto weigh = [&](const AnswerRows& rows, double by_logp) {
        const bool nll = rows.role == SampleRole::kChosen && nll_scale_ > 0;
        for (size_t i = rows.begin; i < rows.end; ++i) {
            const double own = in_answer[i] != 0 ? -by_logp / examples_ : 0;
            weights[i] = static_cast<float>(own + (nll ? nll_scale_ : 0));
            if (nll) sums[PreferenceSums::kLoss] += losses[i] * nll_scale_;
        }
    };
    if (!TakesPairs(options_.loss)) {
        for (const AnswerRows& rows : answers) {
            weigh(rows, OfSingle(rows.role, answer_of(rows), sums));
        }
        return;
    }
    WEFT_CHECK(answers.size() % 2 == 0);
    for (size_t i = 0; i < answers.size(); i += 2) {
        const Answer chosen = answer_of(answers[i]), rejected = answer_of(answers[i + 1]);
        const PairLoss pair = OfPair(chosen, rejected);
        sums[PreferenceSums::kLoss] += pair.loss / examples_;
        NotePair(chosen, rejected, sums);
        weigh(answers[i], pair.by_chosen);
        weigh(answers[i + 1], pair.by_rejected);
    }
}

// by_chosen, by_rejected: derivatives of the margin.
PreferenceLoss::PairLoss PreferenceLoss::Sigmoid(double margin, double by_chosen,
                                                 double by_rejected) const {
    const double e = options_.label_smoothing;
    const double slope = -(1 - e) * Logistic(-margin) + e * Logistic(margin);
    return {-(1 - e) * LogLogistic(margin) - e * LogLogistic(-margin), slope * by_chosen,
            slope * by_rejected};
}

PreferenceLoss::PairLoss PreferenceLoss::OfPair(const Answer& chosen,
                                                const Answer& rejected) const {
    const double beta = options_.beta;
    const double c = chosen.logp / chosen.tokens, r = rejected.logp / rejected.tokens;
    switch (options_.loss) {
        case LossKind::kDpo:
            return Sigmoid(beta * (chosen.ratio() - rejected.ratio()), beta, -beta);
        case LossKind::kIpo: {
            const double off = chosen.ratio() / chosen.tokens - rejected.ratio() / rejected.tokens -
                               1 / (2 * beta);
            return {off * off, 2 * off / chosen.tokens, -2 * off / rejected.tokens};
        }
        case LossKind::kSimpo:
            return Sigmoid(beta * (c - r) - options_.simpo_gamma, beta / chosen.tokens,
                           -beta / rejected.tokens);
        case LossKind::kOrpo: {
            const double good = BelowZero(c), bad = BelowZero(r);
            const double odds = (good - bad) - (LogOneMinusExp(good) - LogOneMinusExp(bad));
            const double slope = -beta * Logistic(-odds);
            return {-beta * LogLogistic(odds), -slope / std::expm1(good) / chosen.tokens,
                    slope / std::expm1(bad) / rejected.tokens};
        }
        case LossKind::kTokens:
        case LossKind::kKto:
        case LossKind::kGrpo:
        case LossKind::kReward:
        case LossKind::kClassification:
        case LossKind::kContrastive: break;
    }
    WEFT_CHECK(false);
}

double PreferenceLoss::Reported(const Answer& answer) const {
    const bool mean = options_.loss == LossKind::kOrpo || options_.loss == LossKind::kSimpo;
    return mean ? answer.logp / answer.tokens : answer.logp;
}

void PreferenceLoss::NotePair(const Answer& chosen, const Answer& rejected,
                              PreferenceSums& sums) const {
    const double c = options_.beta * (Reported(chosen) - chosen.reference);
    const double r = options_.beta * (Reported(rejected) - rejected.reference);
    sums[PreferenceSums::kChosenRewards] += c;
    sums[PreferenceSums::kRejectedRewards] += r;
    sums[PreferenceSums::kAccuracies] += c > r ? 1 : 0;
    sums[PreferenceSums::kChosenLogps] += Reported(chosen);
    sums[PreferenceSums::kRejectedLogps] += Reported(rejected);
}

// Returns the derivative by the log-probability.
double PreferenceLoss::OfSingle(SampleRole role, const Answer& answer, PreferenceSums& sums) const {
    const double beta = options_.beta;
    const bool wanted = role == SampleRole::kChosen;
    const double sign = wanted ? 1 : -1;
    const double weight = wanted ? options_.desirable_weight : options_.undesirable_weight;
    const double s = Logistic(sign * beta * (answer.ratio() - kl_));
    sums[PreferenceSums::kLoss] += weight * (1 - s) / examples_;
    sums[wanted ? PreferenceSums::kChosenRewards : PreferenceSums::kRejectedRewards] +=
        beta * answer.ratio();
    sums[wanted ? PreferenceSums::kChosenLogps : PreferenceSums::kRejectedLogps] += answer.logp;
    return -weight * s * (1 - s) * sign * beta;
}

PreferenceReport PreferenceLoss::Report(const PreferenceSums& sums) const {
    const auto mean = [](double sum, double count) { return count > 0 ? sum / count : 0; };
    const auto& all = sums.sums;
    using Mean = PreferenceReport;
    PreferenceReport report;
    report[Mean::kChosenRewards] = mean(all[PreferenceSums::kChosenRewards], chosen_);
    report[Mean::kRejectedRewards] = mean(all[PreferenceSums::kRejectedRewards], rejected_);
    report[Mean::kAccuracies] = mean(all[PreferenceSums::kAccuracies], examples_);
    report[Mean::kMargins] = report[Mean::kChosenRewards] - report[Mean::kRejectedRewards];
    report[Mean::kChosenLogps] = mean(all[PreferenceSums::kChosenLogps], chosen_);
    report[Mean::kRejectedLogps] = mean(all[PreferenceSums::kRejectedLogps], rejected_);
    report[Mean::kKl] = kl_;
    return report;
}

}  // namespace weft::train
