// The native clients (sbatch, kubectl, ray, ssh) as child processes, and the notes of submitted
// jobs: one file per job, ~/.local/state/weft/submitted/NAME.json, from which `weft job` reads the
// job's engine. Weft stores nothing else, and keeps no process running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "submit/job.h"

namespace weft::submit {

struct Submitted {
    std::string name;
    Target target;
    std::string id;                  // the engine's id: "4711"; "": the name is the id
    std::vector<std::string> hosts;  // for ssh
    std::string folder;              // the folder of the submission; a log's path is relative to it
    std::vector<std::string> command;
    int64_t at_s = 0;  // Unix time in seconds
    bool serves = false;
};

// The folder of the notes: $XDG_STATE_HOME/weft/submitted or ~/.local/state/weft/submitted.
std::string NotesFolder();
// All notes, ordered by time. Skips invalid files; a missing folder has no notes.
std::vector<Submitted> ReadNotes();
// Errors: kNotFound.
Result<Submitted> ReadNote(const std::string& name);
Status WriteNote(const Submitted& job);
void ForgetNote(const std::string& name);

// Passes the file to the engine's client, and writes the note. Returns the note. Errors: kNotFound
// (no client), kIo (with the client's message and status), kUsage (a note with this name exists).
Result<Submitted> Submit(const JobSpec& job, const NativeFile& file);

// The client's commands that show a job's state, show its log (follow: as it grows), and cancel it.
std::vector<std::string> StatusCommand(const Submitted& job);
std::vector<std::string> LogCommand(const Submitted& job, bool follow);
std::vector<std::string> CancelCommand(const Submitted& job);

// A job's state in the engine's own words, in lower case: "running", "2 of 2 ready", or the states
// of all hosts: "ended with status 0, running". "unknown": the client fails, is not installed, or
// does not answer before the deadline; StatusCommand prints the reason.
std::string StateOf(const Submitted& job, const Deadline& deadline);

// Runs a client with this program's standard streams; returns its status. Errors: kNotFound, kIo.
Result<int> RunClient(const std::vector<std::string>& words);
// Runs a client; returns the client's standard output. Errors: those of RunClient; kIo if the
// client fails.
Result<std::string> RunEngineClient(const std::vector<std::string>& words);

}  // namespace weft::submit
