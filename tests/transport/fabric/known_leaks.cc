// What libfabric itself loses per endpoint (about 400 bytes with net of 1.17) must not hide leaks of ours from
// LeakSanitizer.
extern "C" __attribute__((visibility("default"))) const char*
__lsan_default_suppressions() {  // NOLINT: its name is given
  return "leak:libfabric.so\n";
}
