// A shell command of the user that runs after each update or evaluation (--on-step, --on-eval).
//
// The command reads the row's JSON object from its standard input. Its output is dropped; the first
// line of its standard error is part of the error if it ends with another status than 0. At the
// deadline, the command and its process group are killed.
#pragma once

#include <string>

#include "train/log/log_writer.h"

namespace weft::train {

class StepCommand final : public LogWriter {
  public:
    // flag: "--on-step". evaluations: only rows with an evaluation.
    StepCommand(std::string flag, std::string command, int64_t timeout_s, bool evaluations)
        : flag_(std::move(flag)),
          command_(std::move(command)),
          timeout_s_(timeout_s),
          evaluations_(evaluations) {}
    bool Wants(const LogRow& row) const override {
        return !evaluations_ || row.line.contains("eval_loss");
    }
    // Errors: kTimeout; kIo: the command cannot be started, or failed.
    Status Add(const LogRow& row) override;

  private:
    const std::string flag_, command_;
    const int64_t timeout_s_;
    const bool evaluations_;
};

}  // namespace weft::train
