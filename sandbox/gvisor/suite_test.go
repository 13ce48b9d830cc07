package gvisor

import (
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Suite(t, func(t *testing.T) sandbox.Driver { return newDriver(t) })
}
