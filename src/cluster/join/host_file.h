// Reads host files in the formats of Weft, DeepSpeed and Open MPI.
//
//     b:7000            a worker that listens
//     b                 the same, at the default port (kWorkerPort)
//     b slots=1         DeepSpeed's and Open MPI's: a host of the job
//     node[01-04,7]     Slurm's list of hosts, also with commas between names
//     # a comment; also behind a host
//
// DeepSpeed and MPI list all hosts, including this one, which is rank 0. So the parser skips a line
// with slots that names this host. A worker runs one rank, so the parser rejects more than one
// slot.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::cluster {

// Expands a list of hosts as "scontrol show hostnames" does: "n[08-10,2]-ib:7000,x" is n08-ib:7000,
// n09-ib:7000, n10-ib:7000, n2-ib:7000 and x. [IPV6]:PORT is no range. where: for errors, "" or
// "FILE:LINE: ". Errors: kUsage (not a host; more hosts than a job may have).
Result<std::vector<std::string>> ExpandHosts(std::string_view list, const std::string& where);

// Returns the hosts as --hosts would list them, by rank. own: names and addresses of this host.
// path: for errors. Errors: kUsage, with the line in the message.
Result<std::vector<std::string>> ParseHostFile(std::string_view text, const std::string& path,
                                               const std::vector<std::string>& own);
// Reads the file at `path`, for this host. Errors: as above; kNotFound, kIo.
Result<std::vector<std::string>> ReadHostFile(const std::string& path);

}  // namespace weft::cluster
