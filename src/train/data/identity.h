// What a run learns from, in a few numbers: for ranks to compare before the first step, and for a
// checkpoint to know its data again. Where files lie and what they are called is no part of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "train/data/open.h"

namespace weft::train {

struct DataIdentity {
    std::string name;  // for people only
    DataContent content;
    // Checksums of what texts become tokens and conversations texts with; 0 where there is none.
    uint64_t tokenizer = 0, chat = 0;
    int prompt_type = 0;
    double test_split = 0;
    std::string control_tokens = "auto";
};

// Of opened data. Reads the tokenizer's file once more. Errors: those of files.
Result<DataIdentity> IdentityOf(const model_files::ModelSource& source, const DatasetOptions& words,
                                const OpenedData& opened);

nlohmann::json JsonOf(const DataIdentity& identity);
// kCorrupt where it is none.
Result<DataIdentity> IdentityFrom(const nlohmann::json& json);

// What differs, for people, as "8 records (512 bytes, checksum 00c0ffee00c0ffee) here, 20 records
// (..) there; another tokenizer"; empty where nothing does.
std::string DifferenceOf(const DataIdentity& here, const DataIdentity& there,
                         const std::string& here_name, const std::string& there_name);

}  // namespace weft::train
