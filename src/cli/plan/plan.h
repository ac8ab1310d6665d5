// The parts of `weft plan`: flags, notes, and all output except layouts.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line/flags.h"
#include "cli/plan/plan_train.h"
#include "cli/terminal/output.h"
#include "plan/launch_command.h"
#include "plan/measure.h"
#include "plan/search.h"
#include "plan/shapes.h"

namespace weft::cli {

struct PlanFlags {
    std::string typed, typed_draft;  // model and draft, with the assumed type
    std::string head;                // the draft, if it is a head
    std::vector<std::string> lora;   // NAME=FOLDER
    std::string model, machines, kv = "f16", draft, want, budget, ttft;
    plan::Workload load;
    bool explain = false, json = false;
    Option context, prompt, answer;  // to determine which of them are given
    std::vector<Option> inference;   // flags that training lacks
    PlanTrainFlags training;         // with --train
    // --measure
    bool measure = false;
    std::string out;
    plan::MeasureOptions measuring;  // cluster and job: not set
    CommonFlags common;
    bool backwards() const { return !want.empty() || !budget.empty() || !ttft.empty(); }
};

struct PlanRun {
    plan::Library library;
    plan::OpenedShape shape, draft;
};

// Names the assumed weight type; "" if the user named one.
std::string TypeNote(const PlanFlags& flags, const plan::OpenedShape& shape);
// The largest of the smaller types with a layout that fits, as a MODEL: "qwen3-235b:q2_k". Returns
// "" if no type fits, or a file sets the type.
std::string TypeThatFits(const PlanFlags& flags, const PlanRun& run,
                         const plan::ClusterSpec& cluster);

// --want, --budget, --ttft: prints machines that meet these limits.
Status PrintOffers(const PlanFlags& flags, const PlanRun& run);

void AddMeasureOptions(const Command& command, PlanFlags& flags);
// --measure: writes a machine file that describes these ranks to --out or standard output.
Status MeasureHere(PlanFlags& flags);

// "17.3 of 129 GB", with more decimals if fewer would contradict the verdict, and "no: " first if
// it does not fit.
std::string FitText(double needed_bytes, double space_bytes, bool fits);
// "8 hosts with 8 devices each, 64 devices in all; h200:8 is one host with 8"; "" for one device.
std::string HostsText(const plan::ClusterSpec& cluster);
// "not measured: Weft's speed on strix-halo is ..."; "" if all machines are measured.
std::string NotMeasuredNote(const plan::ClusterSpec& cluster);
// Names the parts of the model of which no run is measured; "": there are none.
std::string UnmeasuredNote(const plan::ModelWalk& walk);
// "0.31 s", "4.2 s", "38 s", "14.2 min", "14.6 h".
std::string SecondsText(double seconds);
// Decimals of a rate that show two of its digits, at least `least`: 52 has none, 5.2 one, 0.012
// three.
int RateDigits(double rate, int least);
// "66.6 ±20.1", "0.012 ±0.004"; with least 0: "501 ±110". least: as in RateDigits.
std::string RateText(double rate, double spread, int least = 1);
// "a prompt of 2048 tokens and 512 tokens of answer".
std::string AnswerWords(const plan::Workload& load);

}  // namespace weft::cli
