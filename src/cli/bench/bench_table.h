// Prints the results of `weft bench` in llama-bench's formats: markdown, JSON, JSON lines, CSV. The
// columns and fields are the same as in llama-bench, plus tp, pp, transport, wire and split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "cli/terminal/output.h"
#include "tensor/kv_types.h"

namespace weft::cli {

// Values that all rows share.
struct BenchModel {
    std::string filename, type;  // "llama 135M Q4_1"
    uint64_t size_bytes = 0;
    int64_t parameters = 0;
    std::string backend, hardware, kernels;  // set by SetDevice; backend: "CPU", "Vulkan"
    std::string cpu;
    bool on_gpu() const { return backend != "CPU"; }
};

// The power of the hosts during the test, if requested.
struct BenchPower {
    struct Sensor {
        std::string host, name;
        double watts = 0;
    };
    std::vector<Sensor> sensors;     // of all hosts, each once
    std::vector<std::string> notes;  // "host a: ...": sensors that could not be read, and why
    double seconds = 0;              // measured time: all repetitions
    double watts() const;            // sum over all sensors
};

// One test of one configuration.
struct BenchRow {
    int64_t prompt = 0, generate = 0;  // one of them is 0
    int64_t depth = 0;                 // tokens already in the KV cache
    int64_t seqs = 1;                  // concurrent sequences, each with that many tokens
    int threads = 0, tp = 1, pp = 1, ep = 1;
    std::string transport, split;
    KvTypes kv_type;
    // Types of all-reduces on the wire (--allreduce-dtype, --prompt-allreduce-dtype); "none"
    // without tensor ranks.
    std::string wire, prompt_wire;
    int64_t chunk = 512;
    std::string time;             // ISO 8601, UTC
    std::vector<double> seconds;  // per repetition
    std::optional<BenchPower> power;
    std::optional<double> predicted_ts;  // tokens per second, from `weft plan`
};

enum class BenchForm { kMarkdown, kJson, kJsonLines, kCsv };
// "md", "json", "jsonl", "csv". kUsage otherwise.
Result<BenchForm> ParseBenchForm(const std::string& name);

// Prints rows one by one: Begin, Row ..., End.
class BenchTable {
  public:
    // power: adds power columns. predicted: the machines for which a column shows what `weft plan`
    // predicts; "": no such column.
    BenchTable(BenchForm form, BenchModel model, bool power, std::string predicted = "")
        : form_(form), model_(std::move(model)), power_(power), predicted_(std::move(predicted)) {}
    void Begin();
    // Sets the device of the following rows. cpus_too: some ranks run on CPUs.
    void SetDevice(const backend::DeviceInfo& device, bool cpus_too);
    void Row(const BenchRow& row);
    void End();
    // Call this in place of End after an error. adds_error: the error becomes the last element of a
    // JSON list (PartialJson).
    void BreakOff(bool adds_error);

  private:
    void MarkdownRow(const BenchRow& row);
    std::string PredictedCell(const BenchRow& row) const;
    std::string PowerCells(const BenchRow& row) const;
    Json Fields(const BenchRow& row) const;
    void NotePower(const BenchPower& power);
    void JsonRow(const BenchRow& row, int indent);
    void CsvRow(const BenchRow& row);

    BenchForm form_;
    BenchModel model_;
    bool power_;
    std::string predicted_;
    std::vector<std::string> power_lines_;  // below the table: sensors and notes, each once
    int64_t rows_ = 0;
};

}  // namespace weft::cli
