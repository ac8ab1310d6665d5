// The parts of `weft plan`: what it is asked, and what it shows besides layouts.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/plan_train.h"
#include "plan/run_words.h"
#include "plan/scaling.h"
#include "plan/search.h"
#include "plan/shapes.h"

namespace weft::cli {

struct PlanFlags {
    std::string typed, typed_draft;  // model and draft, with the type that is assumed
    std::string model, machines, runtime = "weft", kv = "f16", draft, want, budget, ttft, plot;
    plan::Workload load;
    bool explain = false, json = false;
    Option context, prompt, answer;  // whether they are given is asked
    std::vector<Option> inference;   // those that training does not have
    PlanTrainFlags training;        // with --train
    // --measure
    bool measure = false;
    std::string out;
    std::vector<std::string> types = {"q4_0", "q8_0", "bf16"};
    std::string measure_with = "synthetic:llama-3.2-1b";
    std::string measure_experts = "synthetic:qwen3-30b-a3b";
    std::string measure_training = "synthetic:smollm2-135m";
    std::vector<std::string> kv_types = {"f16", "q8_0", "bf16", "f32"};
    std::vector<std::string> train_types = {"bf16", "f32"};
    CommonFlags common;
    bool backwards() const { return !want.empty() || !budget.empty() || !ttft.empty(); }
};

// What all parts of a run of the command need.
struct PlanRun {
    plan::Library library;
    plan::Runtime runtime;
    plan::OpenedShape shape, draft;
};

// Which type is planned where none is named; "" where one is.
std::string TypeNote(const PlanFlags& flags, const plan::OpenedShape& shape);
// The largest smaller type of which a layout fits, as a MODEL: "qwen3-235b:q2_k". Empty: none does,
// or the type is that of a file.
std::string TypeThatFits(const PlanFlags& flags, const PlanRun& run, const plan::Cluster& cluster);
void PrintTypeThatFits(const PlanFlags& flags, const PlanRun& run, const std::string& word);

// --want, --budget, --ttft: machines that do it.
Status PrintOffers(const PlanFlags& flags, const PlanRun& run);

// Whether --plot names what can be drawn.
Status CheckPlotName(const std::string& name);
// --plot FILE.svg, FILE.png, or `-` for the terminal: tok/s over machines and over contexts, memory
// of each rank of `best`.
Status DrawPlan(const PlanFlags& flags, const plan::Scaling& scaling, const plan::Prediction& best);

void AddMeasureOptions(const Command& command, PlanFlags& flags);
// --measure: a machine file of these ranks, into --out or on standard output.
Status MeasureHere(PlanFlags& flags);

// "0.31 s", "4.2 s", "38 s".
std::string SecondsText(double seconds);
// "a prompt of 2048 tokens and 512 tokens of answer".
std::string AnswerWords(const plan::Workload& load);

}  // namespace weft::cli
