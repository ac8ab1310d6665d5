// Which ops of a job the hosts' processors run beside GPUs: the flags --experts and --gpu-layers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/job.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "program/placement.h"

namespace weft::engine {

// Checks a value of --experts. Errors: kUsage.
Status CheckExperts(std::string_view experts);

// The host's ops of a job for a model. With Job::weights_on_drive, the host computes all experts
// unless the job places them. Errors: as CheckExperts; kUsage (the job places
// experts, and the model has none).
Result<program::HostOps> HostOpsOf(const Job& job, const model::Hyper& hyper);

// Bytes of a token's KV cache on the device and on the host beside it, and of the experts' weights.
struct ProgramBytes {
    uint64_t device_token = 0, host_token = 0, experts = 0;
};
ProgramBytes BytesOf(const program::Program& program, const program::HostOps& host_ops);

// Bytes of the model's weights that only the host's ops read. With HostOps::fill, all experts
// count.
uint64_t HostWeightBytes(const model_files::ModelSource& source, const program::HostOps& host_ops);

// Bytes per second of large reads of the model's weights past the page cache, measured for about a
// quarter of a second. 0: no tensor is large enough, or a read failed.
double MeasureDrive(const model_files::ModelSource& source);

}  // namespace weft::engine
