// The results of `weft bench` in llama-bench's forms: markdown, JSON, JSON lines, CSV. Its column
// and field names, plus tp, pp, transport, wire and split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "cli/output.h"

namespace weft::cli {

// What all rows have in common.
struct BenchModel {
    std::string filename, type;  // "llama 135M Q4_1"
    uint64_t size_bytes = 0;
    int64_t parameters = 0;
    std::string backend, hardware, kernels;  // of the device: "CPU", "Vulkan"
    std::string cpu;
    bool on_gpu() const { return backend != "CPU"; }
};

// What the hosts drew meanwhile, where that was asked for.
struct BenchPower {
    struct Sensor {
        std::string host, name;
        double watts = 0;
    };
    std::vector<Sensor> sensors;     // of all hosts, each host's once
    std::vector<std::string> notes;  // "host a: ...": what could not be read, and why
    double seconds = 0;              // that were measured: all repetitions
    double watts() const;            // of all sensors together
};

// One test of one configuration.
struct BenchRow {
    int64_t prompt = 0, generate = 0;  // one of them is 0
    int64_t depth = 0;                 // tokens in the KV cache before
    int64_t seqs = 1;                  // at once, each of so many tokens
    int threads = 0, tp = 1, pp = 1, ep = 1;
    std::string transport, split, kv_type;
    std::string wire;  // of the sums (--allreduce-dtype); "none" without tensor ranks
    int64_t chunk = 512;
    std::string time;             // ISO 8601, UTC
    std::vector<double> seconds;  // of each repetition
    std::optional<BenchPower> power;
    std::optional<double> predicted_ts;  // tokens a second by `weft plan`
};

enum class BenchForm { kMarkdown, kJson, kJsonLines, kCsv };
// "md", "json", "jsonl", "csv". kUsage otherwise.
Result<BenchForm> ParseBenchForm(const std::string& name);

// Prints row by row, as they come: Begin, Row ..., End.
class BenchTable {
  public:
    // power: with columns for it; predicted: with one of what these machines should do, "":
    // without.
    BenchTable(BenchForm form, BenchModel model, bool power, std::string predicted = "")
        : form_(form), model_(std::move(model)), power_(power), predicted_(std::move(predicted)) {}
    void Begin();
    // What the rows that follow were computed on.
    void SetDevice(const backend::DeviceInfo& device, bool cpus_too);
    void Row(const BenchRow& row);
    void End();

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
