// Identifies a run's training data by a few numbers. Ranks compare these numbers before the first
// step, and a job that resumes compares them with those in the checkpoint. Paths and file names are
// not part of the identity.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "train/data/open.h"

namespace weft::train {

struct DataIdentity {
    std::string name;  // for messages; not compared
    DataContent content;
    // Checksums of the tokenizer and of the chat template; 0: none.
    uint64_t tokenizer = 0, chat = 0;
    int prompt_type = 0;
    double test_split = 0;
    std::string control_tokens = "auto";
};

// Identity of opened data. Reads the tokenizer's file again. Errors: those of reading files.
Result<DataIdentity> IdentityOf(const model_files::ModelSource& source, const DatasetOptions& words,
                                const OpenedData& opened);

nlohmann::json JsonOf(const DataIdentity& identity);
// Errors: kCorrupt: `json` is not an identity.
Result<DataIdentity> IdentityFrom(const nlohmann::json& json);

// The differences as text for messages, such as "8 records (512 bytes, checksum 00c0ffee00c0ffee)
// here, 20 records (..) there; another tokenizer"; empty if there are none.
std::string DifferenceOf(const DataIdentity& here, const DataIdentity& there,
                         const std::string& here_name, const std::string& there_name);

}  // namespace weft::train
