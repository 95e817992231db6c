//! `logdump`: see the library.

fn main() -> std::process::ExitCode {
    sessionlog_tools::run(std::env::args_os())
}
