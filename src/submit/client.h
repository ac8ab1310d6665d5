// The native clients (sbatch, kubectl, ray, ssh) as child processes, and the notes of jobs that
// this user has submitted: a file each, ~/.local/state/weft/submitted/NAME.json, so that `weft job`
// knows whom to ask. Nothing else is kept, and nothing keeps running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "submit/job.h"

namespace weft::submit {

struct Submitted {
    std::string name;
    Target target;
    std::string id;                  // the engine's own: "4711"; "" where the name is
    std::vector<std::string> hosts;  // of ssh
    std::string folder;              // where it was submitted from: a log's relative path is there
    std::vector<std::string> command;
    int64_t at_s = 0;  // since 1970
    bool serves = false;
};

// The folder of the notes: $XDG_STATE_HOME/weft/submitted or ~/.local/state/weft/submitted.
std::string NotesFolder();
// In the order of time. What is no note is left out; an absent folder holds none.
std::vector<Submitted> ReadNotes();
// Errors: kNotFound.
Result<Submitted> ReadNote(const std::string& name);
Status WriteNote(const Submitted& job);
void ForgetNote(const std::string& name);

// Gives the file to the engine's client, and notes the job. Returns what it then is known as.
// Errors: kNotFound (the client is not here), kIo (what it said, and its status), kUsage (there is
// a note of a job of this name).
Result<Submitted> Submit(const JobSpec& job, const NativeFile& file);

// The client's command for: what state a job is in; its log, followed or not; its end.
std::vector<std::string> StatusCommand(const Submitted& job);
std::vector<std::string> LogCommand(const Submitted& job, bool follow);
std::vector<std::string> CancelCommand(const Submitted& job);

// Runs a client with this program's standard streams; returns its status. Errors: kNotFound, kIo.
Result<int> RunClient(const std::vector<std::string>& words);
// Its standard output. Errors: those, and kIo where it failed.
Result<std::string> AskClient(const std::vector<std::string>& words);

}  // namespace weft::submit
