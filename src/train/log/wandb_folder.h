// An offline run of Weights & Biases: FOLDER/wandb/offline-run-DATE_TIME-ID/run-ID.wandb, which
// `wandb sync` uploads.
//
// The file is a log of LevelDB (https://github.com/google/leveldb/blob/main/doc/log_format.md) with
// the CRC-32 of zlib after a head of 7 bytes: ":W&B", 0xBEE1, 0. Each of its records is a protocol
// buffer `Record` (wandb/proto/wandb_internal.proto of wandb 0.31): num = 1, history = 2, run = 17,
// exit = 18, header = 21.
//
// WANDB_PROJECT and WANDB_ENTITY name the project, and WANDB_NAME the run.
// Errors: kIo with the path; later rows are then lost, too.
#pragma once

#include <string>

#include "base/fd.h"
#include "train/log/log_writer.h"

namespace weft::train {

class WandbFolder final : public LogWriter {
  public:
    // name: of the run; empty: WANDB_NAME. settings: the run's config, an object.
    WandbFolder(std::string folder, std::string name, nlohmann::json settings)
        : folder_(std::move(folder)), name_(std::move(name)), settings_(std::move(settings)) {}
    Status Add(const LogRow& row) override;
    Status End(bool done) override;

  private:
    Status Begin();
    Status Write(std::string record);

    const std::string folder_, name_;
    const nlohmann::json settings_;
    std::string path_;
    Fd file_;
    uint64_t size_ = 0;    // bytes in the file
    int64_t records_ = 0;  // records in the file
    int64_t begin_ns_ = 0;
};

}  // namespace weft::train
