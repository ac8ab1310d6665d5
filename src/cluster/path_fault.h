// Paths between hosts that lose large packets (net/path_mtu.h), in words for a user.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "net/path_mtu.h"

namespace weft::cluster {

// A path that drops large packets: which packets arrive and which do not, both ends' MTU, and what
// to do. way: "to b (10.0.0.2)". place: of the probing end, "here" or "on a".
std::string PathFaultText(const net::PathMtu& path, const std::string& way,
                          const std::string& place);

// What is wrong with the way to a worker that listens at `address` ("HOST:PORT"), who is called
// `name`, as PathFaultText. "": whole packets arrive, or nothing can be said. Takes up to four
// seconds where something is wrong.
std::string PathFaultTo(const std::string& name, const std::string& address);

// An error of a job over hosts (kPeerLost, kTimeout or kIo), with what is wrong with the ways to
// them, if anything is. Other errors come back as they are.
Error WithPathFaults(Error error, const ClusterOptions& options);

// Whether an error says that data did not come although all processes answer.
bool IsOfDataLink(const Error& error);
// Appends a sentence to `text`, which may end with a full stop or not.
void AddSentence(std::string& text, const std::string& sentence);

}  // namespace weft::cluster
