// Rewards of completions: a program of the user (reward_command.h), a regular expression, a JSON
// schema, or a reward model (reward_models.h), which all ranks run. The reward of a completion is
// the weighted sum of all that give it a number.
//
//     regular expression   1 if it is found in the completion, else 0. A named group must be equal
//     to
//                          the record's member of that name: '#### (?<answer>\d+)'. PCRE2's dialect
//     JSON schema          1 if the whole completion, without blanks around it, is JSON that
//     follows
//                          the schema (grammar/json_schema.h), else 0
//
// Thread: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "train/grpo/options.h"
#include "train/grpo/reward_command.h"

namespace weft::train {

// A completion and its record, which must outlive the call.
struct Judged {
    const chat::OrderedJson* record = nullptr;
    std::string text{};
    std::span<const int32_t> tokens{};
};

class Rewards {
  public:
    // ends: as for RewardCommand. Errors: kUsage (an invalid expression or schema), those of files.
    static Result<Rewards> Make(const GrpoOptions& options, RewardCommand::Ends ends = {});

    // By reward, without rewards of models: the value for each completion; not a number: none.
    // Errors: those of RewardCommand.
    Result<std::vector<std::vector<double>>> Score(std::span<const Judged> completions);
    // The weighted sums of all rewards, with the models' rewards last; not a number if no reward
    // has a value.
    std::vector<double> SumsOf(std::span<const std::vector<double>> values) const;

    class Source {
      public:
        virtual ~Source() = default;
        virtual Result<std::vector<double>> Score(std::span<const Judged> completions) = 0;
    };

  private:
    std::vector<std::unique_ptr<Source>> sources_;
    std::vector<double> weights_;
};

// "rewards/cmd", "rewards/regex_2", ...: the rewards' names in reports, in their order.
std::vector<std::string> RewardNames(const GrpoOptions& options);

}  // namespace weft::train
