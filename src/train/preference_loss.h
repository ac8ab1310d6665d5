// Losses over preferences, from the losses of tokens (cross-entropies): their value, and their
// derivative by each token's loss, which is the weight of the token in the backward pass.
//
// With c and r the log-probabilities of the chosen and the rejected answer, c' and r' those in the
// reference model, n the tokens of an answer, s(x) the logistic function, a pair's loss is
//
//     dpo     -(1 - e) log s(h) - e log s(-h), h = beta ((c - c') - (r - r')), e = label smoothing
//     ipo     ((c - c') / n - (r - r') / n - 1 / (2 beta))^2
//     simpo   as dpo, h = beta (c / n - r / n) - gamma
//     orpo    -beta log s(odds(c / n) - odds(r / n)), odds(x) = x - log(1 - exp(x)); and the mean
//             cross-entropy of the chosen answers with their prompts is added
//     kto     of a chosen answer wd (1 - s(beta (c - c' - kl))), of a rejected one
//             wu (1 - s(beta (kl - (r - r')))); kl: the mean of m - m' over answers m to other
//             prompts, at least 0
//
// The loss of a batch is the mean over its pairs (kto: over its answers), on any ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/loader.h"
#include "train/data/loss_kind.h"

namespace weft::train {

// Names and defaults of TRL.
struct PreferenceOptions {
    LossKind loss = LossKind::kTokens;
    double beta = 0.1;
    double label_smoothing = 0;  // dpo, simpo
    double simpo_gamma = 0.5;
    double desirable_weight = 1, undesirable_weight = 1;  // kto
    std::string ref_model;  // the reference model; empty: the model before training
    bool on() const { return IsPreference(loss); }
};

// Errors: kUsage; the message names the flag.
Status CheckPreference(const PreferenceOptions& options);

// An answer in a micro-batch: its rows with a target.
struct AnswerRows {
    SampleRole role = SampleRole::kChosen;
    size_t begin = 0, end = 0;
    double reference = 0;
};

// Values of a batch, summed over its answers; a rank has the part of its own answers.
struct PreferenceSums {
    enum Name {
        kLoss,  // complete: the ranks' parts add up to the batch's loss
        kChosenRewards,
        kRejectedRewards,
        kAccuracies,
        kChosenLogps,
        kRejectedLogps,
        kNames,
    };
    std::array<double, kNames> sums{};
    double& operator[](Name name) { return sums[name]; }
};

// Means of a batch, with TRL's names.
struct PreferenceReport {
    enum Name {
        kChosenRewards,
        kRejectedRewards,
        kAccuracies,  // pairs only
        kMargins,
        kChosenLogps,
        kRejectedLogps,
        kKl,  // kto only
        kNames,
    };
    static constexpr const char* kText[] = {"rewards/chosen",
                                            "rewards/rejected",
                                            "rewards/accuracies",
                                            "rewards/margins",
                                            "logps/chosen",
                                            "logps/rejected",
                                            "kl"};
    std::array<double, kNames> values{};
    double& operator[](Name name) { return values[name]; }
    // The names that a loss has.
    static std::vector<Name> NamesOf(LossKind loss);
};

class PreferenceLoss {
  public:
    // kl: KTO's estimate for this batch.
    PreferenceLoss(const PreferenceOptions& options, const Batch& batch, double kl);

    // losses: cross-entropies of a micro-batch's rows; in_answer: whether a row belongs to an
    // answer, not to a prompt. Chosen and rejected answers of pairs follow one another. Sets
    // weights[i] to the derivative of the batch's loss by losses[i], and adds to `sums`.
    void Add(std::span<const AnswerRows> answers, std::span<const float> losses,
             std::span<const uint8_t> in_answer, std::span<float> weights,
             PreferenceSums& sums) const;
    PreferenceReport Report(const PreferenceSums& sums) const;
    // Pairs of the batch; kto: answers.
    int64_t examples() const { return static_cast<int64_t>(examples_); }

  private:
    struct Answer {
        double logp = 0, reference = 0, tokens = 0;
        double ratio() const { return logp - reference; }
    };
    struct PairLoss {
        double loss = 0, by_chosen = 0, by_rejected = 0;  // derivatives by log-probabilities
    };
    PairLoss OfPair(const Answer& chosen, const Answer& rejected) const;
    PairLoss Sigmoid(double margin, double by_chosen, double by_rejected) const;
    // The log-probability that rewards and "logps" are made of.
    double Reported(const Answer& answer) const;
    void NotePair(const Answer& chosen, const Answer& rejected, PreferenceSums& sums) const;
    double OfSingle(SampleRole role, const Answer& answer, PreferenceSums& sums) const;

    const PreferenceOptions& options_;
    const double kl_;
    double chosen_ = 0, rejected_ = 0;  // answers of the batch
    double examples_ = 0;               // pairs; kto: answers
    double nll_scale_ = 0;              // orpo: 1 / (targets of chosen answers)
};

// The log-probability of an answer.
double LogProbability(const AnswerRows& answer, std::span<const float> losses,
                      std::span<const uint8_t> in_answer);

}  // namespace weft::train
