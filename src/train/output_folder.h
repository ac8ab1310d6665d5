// The output folder of a training job (--output-dir). Only one job uses the folder at a time, and a
// job overwrites the files of another job only on request.
//
// Rank 0 holds a lock (flock(2)) on FOLDER/.weft-train.lock from before the first write until its
// process ends; the kernel releases the lock. The file says which process holds the lock. On file
// systems without locks, the job logs a warning and continues.
//
// Thread: one caller at a time.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace weft::train {

struct OutputFolderOptions {
    std::string folder;
    std::string resume;       // SaveOptions::resume
    bool overwrite = false;   // start over and delete existing results
    bool begun_anew = false;  // an earlier start of this job has already cleared the folder
    // Paths that the job reads (model, adapter), which may be in this folder.
    std::vector<std::string> read = {};
};

class OutputFolder {
  public:
    // Creates the folder if it is missing, and locks it. Errors: kIo: the folder cannot be created
    // or written; kDenied: another job holds the lock; the message has its host, process and start
    // time. kUsage: the folder has a result or checkpoints, and neither --resume nor --overwrite is
    // given; or a step's folder has only files that Weft did not write.
    static Result<OutputFolder> Take(const OutputFolderOptions& words);

    // With --overwrite, the first call deletes the previous job's checkpoints, logs and result, so
    // that nobody mistakes them for files of this job. Files that this job reads, and files that
    // Weft did not write, stay. Errors: kIo.
    Status Clear();
    // The text of the lock file; "": the folder has no lock file. Ranks that read the same text see
    // the same folder.
    const std::string& token() const { return token_; }

  private:
    OutputFolder(OutputFolderOptions words, int fd) : words_(std::move(words)), fd_(fd) {}

    OutputFolderOptions words_;
    // (The lock file stays: deleting it could take the lock from a process that has just opened
    // it.)
    Fd fd_;
    std::string token_;
};

// Whether a command that is started again after it ended early resumes from existing checkpoints.
// With --overwrite, only checkpoints of the last start count.
bool GoesOnAfterRestart(const std::string& folder, bool overwrite);

// The text of a folder's lock file; "": the folder has no lock file.
std::string FolderToken(const std::string& folder);

}  // namespace weft::train
