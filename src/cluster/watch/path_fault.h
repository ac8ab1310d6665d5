// Error texts for network paths that lose large packets (net/path_mtu.h).
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "net/path_mtu.h"

namespace weft::cluster {

// Text about a path that drops large packets: the sizes that arrive and do not arrive, both MTUs,
// and the next step. way: "to b (10.0.0.2)". place: of the probing end, "here" or "on a".
std::string PathFaultText(const net::PathMtu& path, const std::string& way,
                          const std::string& place);

// Probes the path to worker `name` at `address` ("HOST:PORT"); the result is as in PathFaultText.
// "": large packets arrive, or the probe has no result. Takes up to four seconds on a faulty path.
std::string PathFaultTo(const std::string& name, const std::string& address);

// Adds path faults, if any, to an error of a job over hosts (kPeerLost, kTimeout or kIo). Returns
// other errors unchanged.
Error WithPathFaults(Error error, const ClusterOptions& options);

// Whether an error means that data did not arrive although all processes answer.
bool IsOfDataLink(const Error& error);
// Appends a sentence to `text`, with or without a final period there.
void AddSentence(std::string& text, const std::string& sentence);

}  // namespace weft::cluster
