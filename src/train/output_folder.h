// The folder that a training job writes to (--output-dir): one job at a time, and never over what
// another one has left there, unless that is meant.
//
// One job: rank 0 holds a lock (flock(2)) on FOLDER/.weft-train.lock from before anything is
// written until its process ends, however it ends: the kernel lets go of it. The file says who
// holds it. File systems without locks are told of in the log, and gone on with.
//
// Thread: one caller at a time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct OutputFolderOptions {
    std::string folder;
    std::string resume;                  // SaveOptions::resume
    bool overwrite = false;              // begin anew, over what is there
    bool begun_anew = false;             // an earlier start of this job has cleared the folder
    std::vector<std::string> read = {};  // what the job reads: the model, an adapter; may lie there
};

class OutputFolder {
  public:
    // Makes the folder where it is missing, and takes it. Errors: kIo: it can't be made, or not be
    // written to; kDenied: another job has it, naming host, process and since when; kUsage: a
    // result or checkpoints lie there, and neither --resume nor --overwrite says what to do.
    static Result<OutputFolder> Take(const OutputFolderOptions& words);
    OutputFolder(OutputFolder&& other) noexcept;
    OutputFolder& operator=(OutputFolder&&) = delete;
    ~OutputFolder();

    // With --overwrite, once: checkpoints, logs and the result of the job before go, so that none
    // of it looks like this job's. What this job reads stays until it is replaced. Errors: kIo.
    Status Clear();
    // What the lock file says; another rank that reads the same sees the same folder. "" without.
    const std::string& token() const { return token_; }

  private:
    OutputFolder(OutputFolderOptions words, int fd) : words_(std::move(words)), fd_(fd) {}

    OutputFolderOptions words_;
    int fd_;
    std::string token_;
};

// For a command that is started again after it ended early: whether it goes on from checkpoints
// that lie there. With --overwrite only those count that the last start wrote.
bool GoesOnAfterRestart(const std::string& folder, bool overwrite);

// What the lock file of a folder says; "" where there is none.
std::string FolderToken(const std::string& folder);

}  // namespace weft::train
