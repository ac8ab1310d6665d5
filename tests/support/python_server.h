// A Python server for tests: it prints its ports in one line and serves until its standard input
// ends.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/paths.h"

namespace weft::test {

class PythonServer {
  public:
    // script: path below tests/. ports: number of ports that it prints.
    PythonServer(const std::string& script, size_t ports, std::vector<std::string> words = {}) {
        words.insert(words.begin(), {"python3", support::TestData("/../") + script});
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        int to[2], from[2];
        WEFT_CHECK(::pipe2(to, O_CLOEXEC) == 0 && ::pipe2(from, O_CLOEXEC) == 0);
        pid_ = ::fork();
        WEFT_CHECK(pid_ >= 0);
        if (pid_ == 0) {
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            ::execvp(argv[0], argv.data());
            ::_exit(126);
        }
        ::close(to[0]);
        ::close(from[1]);
        stdin_ = to[1];
        FILE* out = ::fdopen(from[0], "r");
        ports_.resize(ports);
        for (int& port : ports_) WEFT_CHECK(std::fscanf(out, "%d", &port) == 1);
        std::fclose(out);
    }
    ~PythonServer() {
        ::close(stdin_);
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    PythonServer(const PythonServer&) = delete;
    PythonServer& operator=(const PythonServer&) = delete;

    int port(size_t index = 0) const { return ports_[index]; }

  private:
    pid_t pid_ = -1;
    int stdin_ = -1;
    std::vector<int> ports_;
};

}  // namespace weft::test
