// Finds the samples of a packed record: a record of token ids that has several samples in a row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "train/data/sample.h"

namespace weft::train {

// Returns one flag per id of the record: 1 where a sample starts; empty if the record is one
// sample. Reads `seq_lengths` (TRL), `seq_lens` (torchtune), and positions that restart from 0:
// `position_ids` (transformers, axolotl), `input_pos` (torchtune). count: the record's ids; seen:
// 0 where an id is padding, whose positions mean nothing; empty: no id is.
//
// Errors (the messages do not have the record's place): kCorrupt (lengths that do not add up to
// `count`, positions that do not count up from 0), kUnsupported (another member that packs).
Result<std::vector<uint8_t>> SampleStarts(const chat::OrderedJson& record, size_t count,
                                          std::span<const uint8_t> seen);

// Splits at the starts. A sample may have fewer than two tokens.
std::vector<Sample> SplitPacked(Sample packed);

}  // namespace weft::train
