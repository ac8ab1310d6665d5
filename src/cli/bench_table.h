// The results of `weft bench` in llama-bench's forms: markdown, JSON, JSON lines, CSV. Its column
// and field names, plus tp, pp, transport, wire and split.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

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

// One test of one configuration.
struct BenchRow {
    int64_t prompt = 0, generate = 0;  // one of them is 0
    int64_t depth = 0;                 // tokens in the KV cache before
    int64_t seqs = 1;                  // at once, each of so many tokens
    int threads = 0, tp = 1, pp = 1;
    std::string transport, split, kv_type;
    std::string wire;  // of the sums (--wire); "none" without tensor ranks
    int64_t chunk = 512;
    std::string time;             // ISO 8601, UTC
    std::vector<double> seconds;  // of each repetition
};

enum class BenchForm { kMarkdown, kJson, kJsonLines, kCsv };
// "md", "json", "jsonl", "csv". kUsage otherwise.
Result<BenchForm> ParseBenchForm(const std::string& name);

// Prints row by row, as they come: Begin, Row ..., End.
class BenchTable {
  public:
    BenchTable(BenchForm form, BenchModel model) : form_(form), model_(std::move(model)) {}
    void Begin();
    void Row(const BenchRow& row);
    void End();

  private:
    void MarkdownRow(const BenchRow& row) const;
    void JsonRow(const BenchRow& row, int indent);
    void CsvRow(const BenchRow& row);

    BenchForm form_;
    BenchModel model_;
    int64_t rows_ = 0;
};

}  // namespace weft::cli
