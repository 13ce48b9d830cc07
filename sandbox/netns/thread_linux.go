package netns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs fn on a thread that is thrown away afterwards, so that fn
// may change the thread's namespaces. It never uses up the main thread: that
// one is what /proc/self describes.
func OnOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Hold the main thread here and go on in another one.
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(fn)
			return
		}
		done <- fn() // stays locked: the thread ends with this goroutine
	}()
	return <-done
}
